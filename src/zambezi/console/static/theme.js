// Runs before the page is drawn, so that a dark page does not flash white.
const chosen = localStorage.getItem("theme");
document.documentElement.dataset.theme =
  chosen || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
