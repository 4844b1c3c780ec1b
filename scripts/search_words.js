// Prepare the words of a search: the theme's search looks for every word that begins as one of the query does, so
// "a" would find "answer", and "files" would not find "file".
(() => {
  const SEARCH_QUERY = 2; // The type of a message to the theme's search worker.
  const ENDINGS = [/^(.{4,})(?:ies|ing|ed|y)$/i, /^(.{2,}(?:s|x|z|ch|sh))es$/i, /^(.{2,}[^s])s$/i, /^(.{4,})e$/i];
  const UNSEARCHED = new Set(
    ("a an and any are as at be but by can could did do does for from had has have how i if in into is it its let me my " +
      "need not of on one or our out should so some than that the their them then there they this to us use want was " +
      "we were what when where which while who why will with would you your").split(" "),
  );

  /** Return a word without the ending of a plural or a verb. Words with signs, such as "+tool", stay. */
  function shortenWord(word) {
    if (!/^[a-z]+$/i.test(word)) return word;
    const ending = ENDINGS.find((ending) => ending.test(word));
    return ending ? word.replace(ending, "$1") : word;
  }

  /** Return a query without words that say nothing about the subject; a query of only such words stays. */
  function prepareQuery(query) {
    if (query.includes('"')) return query;
    const words = query.split(/[\s,;?!()]+/).filter((word) => word && !UNSEARCHED.has(word.toLowerCase()));
    return words.length ? words.map(shortenWord).join(" ") : query;
  }

  const send = Worker.prototype.postMessage;
  Worker.prototype.postMessage = function (message, ...rest) {
    const isQuery = message?.type === SEARCH_QUERY && typeof message.data === "string";
    send.call(this, isQuery ? { ...message, data: prepareQuery(message.data) } : message, ...rest);
  };
})();
