/**
 * Where the browser would not keep the session's cookie, says so and takes no token, which would cross the network as it is. Only the
 * browser knows, since a proxy may speak HTTPS for the server.
 */

const told = /** @type {HTMLElement} */ (document.getElementById("insecure"));
const ways = /** @type {HTMLElement} */ (document.getElementById("ways"));
told.hidden = window.isSecureContext;
ways.hidden = !window.isSecureContext;
