#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// How encode() treats special tokens.
///
/// Example:
///
///     // Text from strangers: "<|endoftext|>" in it is only text.
///     auto ids = tokenizer->encode(text, {.reads_special_tokens = false});
struct EncodeOptions {
  /// Adds the tokens that the tokenizer's file puts around a text, such as `<s>`. Few files do.
  bool adds_special_tokens = true;
  /// Special tokens that the text spells, such as "<|endoftext|>", become one id. If false, they are encoded
  /// as any other text.
  bool reads_special_tokens = true;
};

/// How decode() treats special tokens.
///
/// Example:
///
///     std::cout << tokenizer->decode(ids, {.skips_special_tokens = true});
struct DecodeOptions {
  bool skips_special_tokens = false;  ///< leaves special tokens out of the text
};

/// A token that is no part of ordinary text, such as "<|endoftext|>".
///
/// Example:
///
///     for (const SpecialToken& token : tokenizer->special_tokens())
///       std::cout << token.id << ' ' << token.text << '\n';
struct SpecialToken {
  std::string text;
  uint32_t id = 0;

  bool operator==(const SpecialToken&) const = default;
};

/// Turns text into the ids of tokens, and back. All functions are thread-safe, and give the same ids in every
/// process. Text is UTF-8; bytes that are not valid UTF-8 are encoded as they are and never replaced.
///
/// Example:
///
///     auto tokenizer = open_tokenizer("gpt2/tokenizer.json");
///     std::vector<uint32_t> ids = tokenizer->encode("Hello, world");
///     std::string text = tokenizer->decode(ids);
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  /// Returns the ids of a text. Throws DataError if the tokenizer's file makes the text more than 32 times
  /// longer, or has a pattern that takes too many steps at a place of it; std::length_error if a single word
  /// has 4 GiB or more.
  std::vector<uint32_t> encode(std::string_view text, const EncodeOptions& options = {}) const;
  /// As encode(), but appends to `ids`, whose memory can be used again for the next text. If it throws, `ids`
  /// may hold a part of the text.
  void encode_to(std::vector<uint32_t>& ids, std::string_view text, const EncodeOptions& options = {}) const {
    append_ids(text, options, ids);
  }
  /// Encodes each text by itself, on up to `num_threads` threads; 0 means one per core. Blocks until all are
  /// done. The ids do not depend on the number of threads. Throws as encode().
  std::vector<std::vector<uint32_t>> encode_batch(std::span<const std::string_view> texts,
                                                  const EncodeOptions& options = {},
                                                  size_t num_threads = 0) const;

  /// Returns the text of tokens. It need not be valid UTF-8: a token may hold a part of a character. Throws
  /// std::invalid_argument if an id is not in the vocabulary, and DataError if the tokenizer's file makes the
  /// text more than 32 times longer.
  std::string decode(std::span<const uint32_t> ids, const DecodeOptions& options = {}) const {
    return text_of(ids, options);
  }

  /// Returns the highest id plus 1: the rows that an embedding needs.
  virtual size_t vocabulary_size() const = 0;
  /// Returns all special tokens in the order of their ids.
  virtual const std::vector<SpecialToken>& special_tokens() const = 0;

  /// Returns the id of a special token such as "<|endoftext|>", or nothing if there is none of this text.
  std::optional<uint32_t> special_token(std::string_view text) const;
  /// Returns the id of the token that ends a document, or nothing if there is none. Files of tokenizers do
  /// not name it, so this looks for special tokens with usual names, in this order: `<|endoftext|>`,
  /// `<|end_of_text|>`, `</s>`, `<eos>`, and `<|end▁of▁sentence|>` with full-width bars.
  std::optional<uint32_t> end_of_text() const;

 protected:
  Tokenizer() = default;
  Tokenizer(const Tokenizer&) = default;
  Tokenizer& operator=(const Tokenizer&) = default;

 private:
  virtual void append_ids(std::string_view text, const EncodeOptions& options,
                          std::vector<uint32_t>& ids) const = 0;
  virtual std::string text_of(std::span<const uint32_t> ids, const DecodeOptions& options) const = 0;
};

}  // namespace lockstep
