// The theme wraps wide tables so that they scroll; the keyboard must reach them, too.
const reach = () => document.querySelectorAll(".md-typeset__scrollwrap:not([tabindex])").forEach((e) => (e.tabIndex = 0));
new MutationObserver(reach).observe(document.documentElement, { childList: true, subtree: true });
reach();

// A menu that narrow windows open by a label is opened by the keyboard, too.
document.querySelectorAll("label.md-header__button[for='__drawer'], label.md-header__button[for='__search']").forEach((label) => {
  label.tabIndex = 0;
  label.setAttribute("role", "button");
  label.setAttribute("aria-label", label.htmlFor === "__drawer" ? "Menu" : "Search");
  label.addEventListener("keydown", (event) => { if (event.key === "Enter" || event.key === " ") label.click(); });
});
