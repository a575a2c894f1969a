// The theme wraps wide tables so that they scroll; the keyboard must reach them, too.
const reach = () => document.querySelectorAll(".md-typeset__scrollwrap:not([tabindex])").forEach((e) => (e.tabIndex = 0));
new MutationObserver(reach).observe(document.documentElement, { childList: true, subtree: true });
reach();
