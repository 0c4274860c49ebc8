#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// The conversion of text to tokens.
struct TextEncoding {
  /// Returns the tokens of a text, for example `[&](std::string_view text) { return tokenizer.encode(text);
  /// }`. The text is passed on as it is in the file, whether it is valid UTF-8 or not. Called from one
  /// thread.
  std::function<std::vector<uint32_t>(std::string_view)> encode{};
  /// The token that is put after each document.
  uint32_t end_of_text = 0;
  /// Names the tokenizer and its vocabulary, such as a checksum of its file. Tokens that another tokenizer
  /// left in the cache are not used.
  std::string identity{};
  /// The field of JSON lines that holds the text.
  std::string json_field = "text";
  /// Whether a text with bytes that are not valid UTF-8 is an error, which names the file and the first such
  /// byte: it is probably no text, or of another encoding.
  bool requires_utf8 = false;
};

}  // namespace lockstep
