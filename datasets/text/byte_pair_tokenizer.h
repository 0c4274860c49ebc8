#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/datasets/text/byte_pair_files.h"
#include "lockstep/datasets/text/tokenizer.h"

namespace lockstep {

/// A tokenizer by byte pair encoding, as GPT-2, Llama, Qwen, Mistral and Gemma have. It reads the files that
/// these models come with, and gives the ids that Hugging Face's Python package `tokenizers` gives;
/// docs/text.md lists what files may contain, and where the two differ.
///
/// Bytes that are not valid UTF-8 become the tokens of single bytes. They split the text: the parts before
/// and after them are encoded separately. decode() returns these bytes unchanged.
///
/// Example:
///
///     BytePairTokenizer tokenizer("llama3/tokenizer.json");
///     auto ids = tokenizer.encode("Hello");
///     auto end = tokenizer.special_token("<|end_of_text|>").value();
class BytePairTokenizer final : public Tokenizer {
 public:
  /// Reads a tokenizer.json. Takes a second or less for files of published models; docs/text.md lists the
  /// limits. Throws DataError naming the file, the field and its value if the file cannot be read, is
  /// damaged, contradicts itself, exceeds a limit, or asks for something that is not supported.
  explicit BytePairTokenizer(const std::string& path);
  /// Reads the pair of files that GPT-2 came with, and splits words as GPT-2 does. "<|endoftext|>" is a
  /// special token if the vocabulary has it. Throws DataError as above.
  explicit BytePairTokenizer(const BytePairFiles& files);
  ~BytePairTokenizer() override;
  BytePairTokenizer(BytePairTokenizer&& other) noexcept;
  BytePairTokenizer& operator=(BytePairTokenizer&& other) noexcept;

  size_t vocabulary_size() const override;
  const std::vector<SpecialToken>& special_tokens() const override;

 private:
  class Pipeline;

  void append_ids(std::string_view text, const EncodeOptions& options,
                  std::vector<uint32_t>& ids) const override;
  std::string text_of(std::span<const uint32_t> ids, const DecodeOptions& options) const override;

  std::unique_ptr<const Pipeline> pipeline_;
};

}  // namespace lockstep
