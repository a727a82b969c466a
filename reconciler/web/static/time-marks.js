/** Marks of pictures of time in the reader's time zone; as the server writes them, they are in UTC. */

const DAY_MS = 86_400_000;
const CLOCK = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit" });
const DAY = new Intl.DateTimeFormat(undefined, { month: "short", day: "numeric" });

function mark() {
  const marks = [...document.querySelectorAll("text[data-at]")];
  const moments = marks.map((each) => new Date(each.getAttribute("data-at") ?? ""));
  const isLong = moments.length > 1 && moments[1].getTime() - moments[0].getTime() >= DAY_MS;
  marks.forEach((each, i) => {
    const begins = moments[i].getHours() + moments[i].getMinutes() === 0;
    const text = (begins || isLong ? DAY : CLOCK).format(moments[i]);
    if (each.textContent !== text) each.textContent = text;
  });
}

mark();
new MutationObserver(mark).observe(document.body, { childList: true, characterData: true, subtree: true });
