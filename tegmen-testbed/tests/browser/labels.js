// Measures a page: the figures that are drawn, and every label that is cut, covers another, is faint or too small to read.
(() => {
  const found = { width: innerWidth, dark: matchMedia('(prefers-color-scheme: dark)').matches, drawn: 0, cut: [], over: [], faint: [], small: [] };
  const color = text => (text.match(/[\d.]+/g) || [0, 0, 0]).map(Number);
  const luminance = ([r, g, b]) => {
    const part = value => value / 255 <= .03928 ? value / 255 / 12.92 : ((value / 255 + .055) / 1.055) ** 2.4;
    return .2126 * part(r) + .7152 * part(g) + .0722 * part(b);
  };
  const contrast = (a, b) => {
    const [low, high] = [luminance(color(a)), luminance(color(b))].sort((x, y) => x - y);
    return (high + .05) / (low + .05);
  };
  // The nearest background of an element that is not transparent.
  const background = element => {
    for (let at = element; at; at = at.parentElement) {
      const own = getComputedStyle(at).backgroundColor;
      if (color(own)[3] !== 0) return own;
    }
    return 'rgb(255, 255, 255)';
  };
  const shown = element => element.textContent.trim().slice(0, 60);
  for (const svg of document.querySelectorAll('svg')) {
    const outer = svg.getBoundingClientRect();
    if (outer.width > 250 && outer.height > 50 && svg.getBBox().height > 50) found.drawn++;
    const paper = svg.querySelector('.paper');
    const texts = [...svg.querySelectorAll('text')].filter(text => text.textContent.trim());
    const boxes = texts.map(text => text.getBoundingClientRect());
    texts.forEach((text, i) => {
      const a = boxes[i];
      if (a.left < outer.left - 1 || a.right > outer.right + 1 || a.top < outer.top - 1 || a.bottom > outer.bottom + 1)
        found.cut.push(shown(text));
      const behind = text.classList.length ? text.previousElementSibling : paper;
      const back = behind ? getComputedStyle(behind).fill : background(svg);
      if (contrast(getComputedStyle(text).fill, back) < 4.5) found.faint.push(shown(text));
      if (parseFloat(getComputedStyle(text).fontSize) * outer.width / svg.viewBox.baseVal.width < 11) found.small.push(shown(text));
      for (let k = i + 1; k < boxes.length; k++) {
        const b = boxes[k];
        if (Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1 && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 2)
          found.over.push(shown(text) + ' / ' + shown(texts[k]));
      }
    });
  }
  if (document.documentElement.scrollWidth > innerWidth + 1) found.cut.push('the page is wider than the screen');
  for (const label of document.querySelectorAll('h1, h2, h3, p, a, b, code, th, td')) {
    const box = label.getBoundingClientRect();
    if (!box.width || !label.textContent.trim()) continue;
    const scrolls = label.closest('.wide');
    if (!scrolls && (box.left < -1 || box.right > innerWidth + 1)) found.cut.push(shown(label));
    if (label.clientWidth && label.scrollWidth > label.clientWidth + 1) found.cut.push(shown(label));
    const style = getComputedStyle(label);
    if (contrast(style.color, background(label)) < 4.5) found.faint.push(shown(label));
    if (parseFloat(style.fontSize) < 11) found.small.push(shown(label));
  }
  // Links of the overview must not lie over each other.
  const links = [...document.querySelectorAll('.chips a')].map(link => [link, link.getBoundingClientRect()]);
  links.forEach(([link, a], i) => links.slice(i + 1).forEach(([other, b]) => {
    if (Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1 && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 1)
      found.over.push(shown(link) + ' / ' + shown(other));
  }));
  return found;
})()
