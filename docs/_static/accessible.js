// Adds what the theme's templates lack: levels of captions, names of landmarks, and the focus of code that scrolls.
document.addEventListener("DOMContentLoaded", () => {
  document.querySelectorAll('[role="heading"]:not([aria-level])').forEach((caption) => (caption.ariaLevel = "2"));
  for (const [name, label] of [["sidebar-drawer", "Pages"], ["toc-drawer", "Contents of this page"]])
    document.querySelector(`.${name}`)?.setAttribute("aria-label", label);
  document.querySelectorAll("pre, .table-wrapper, div.math").forEach((block) => (block.tabIndex = 0));
});
