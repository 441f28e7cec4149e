// Ids for requests. `crypto.randomUUID` exists only on secure origins; a server in a local network may have none.

export function newId(random = crypto) {
  if (random.randomUUID) return random.randomUUID();
  return [...random.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}
