"use strict";
(() => {
  const form = document.getElementById("filters");
  const profile = document.getElementById("profile-filter");
  const text = document.getElementById("text-filter");
  const boxes = [...form.querySelectorAll("input[name=outcome]")];
  const rows = [...document.querySelectorAll("tr.rule")];
  const groups = [...document.querySelectorAll("#matrix > tbody")];
  const failures = [...document.querySelectorAll("article.failure")];
  const shown = document.getElementById("shown");
  const nothing = document.getElementById("nothing");

  const open = (row, wanted) => {
    const button = row.querySelector("button");
    button.setAttribute("aria-expanded", String(wanted));
    row.nextElementSibling.hidden = !wanted;
  };

  const filter = () => {
    const words = text.value.toLowerCase().split(/\s+/).filter(Boolean);
    const outcomes = boxes.filter((box) => box.checked).map((box) => `|${box.value}|`);
    const fits = (element, where) =>
      (!profile.value || where === profile.value) &&
      outcomes.some((one) => element.dataset.outcomes.includes(one)) &&
      words.every((word) => element.dataset.text.includes(word));
    let count = 0;
    for (const group of groups) {
      let any = false;
      for (const row of group.querySelectorAll("tr.rule")) {
        const fit = fits(row, group.dataset.profile);
        row.hidden = !fit;
        const expanded = row.querySelector("button").getAttribute("aria-expanded") === "true";
        row.nextElementSibling.hidden = !fit || !expanded;
        any ||= fit;
        count += fit;
      }
      group.hidden = !any;
    }
    for (const failure of failures) failure.hidden = !fits(failure, failure.dataset.profile);
    shown.textContent = `${count} of ${rows.length} rules shown`;
    nothing.hidden = count > 0;
  };

  form.addEventListener("input", filter);
  form.addEventListener("reset", () => setTimeout(filter));
  form.addEventListener("submit", (event) => event.preventDefault());
  for (const row of rows) {
    const button = row.querySelector("button");
    button.addEventListener("click", () => open(row, button.getAttribute("aria-expanded") !== "true"));
  }
  for (const button of document.querySelectorAll("button.copy")) {
    button.addEventListener("click", async () => {
      try {
        await navigator.clipboard.writeText(button.previousElementSibling.textContent);
        button.textContent = "Copied";
      } catch {
        getSelection().selectAllChildren(button.previousElementSibling);
        button.textContent = "Selected";
      }
    });
  }
  const follow = () => {
    const target = location.hash && document.getElementById(location.hash.slice(1));
    if (target && target.classList.contains("detail")) open(target.previousElementSibling, true);
  };
  addEventListener("hashchange", follow);
  follow();
  filter();
})();
