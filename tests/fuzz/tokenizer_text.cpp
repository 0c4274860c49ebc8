#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/datasets/text/byte_pair_tokenizer.h"
#include "lockstep/datasets/text/byte_tokenizer.h"
#include "lockstep/tests/datasets/text/small_tokenizers.h"
#include "lockstep/tests/fuzz/fuzz.h"

namespace lockstep::fuzz {
namespace {

constexpr const char* kLlama3Words =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

std::unique_ptr<Tokenizer> open_json(const nlohmann::json& json) {
  return std::make_unique<BytePairTokenizer>(MemoryFile(json.dump()).path());
}

/// Tokenizers that give back every byte of a text that begins with a letter.
std::vector<std::unique_ptr<Tokenizer>> make_tokenizers() {
  std::vector<std::unique_ptr<Tokenizer>> tokenizers;
  tokenizers.push_back(std::make_unique<ByteTokenizer>());
  auto json = testing::byte_level_json();
  tokenizers.push_back(open_json(json));
  json["pre_tokenizer"] = {{"type", "Sequence"},
                           {"pretokenizers",
                            {{{"type", "Split"},
                              {"pattern", {{"Regex", kLlama3Words}}},
                              {"behavior", "Isolated"},
                              {"invert", false}},
                             {{"type", "Digits"}, {"individual_digits", true}},
                             {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}}}}};
  json["model"]["ignore_merges"] = true;
  json["added_tokens"].push_back(testing::added_token("<|", 262, false));
  json["added_tokens"].push_back(testing::added_token("hell", 258, false));
  tokenizers.push_back(open_json(json));
  tokenizers.push_back(open_json(testing::character_json()));
  return tokenizers;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const auto tokenizers = make_tokenizers();
  const std::string text = "x" + std::string(text_of(data, size));
  // The mark of a space decodes to a space.
  std::string shown = text;
  for (size_t at = shown.find("\xE2\x96\x81"); at != std::string::npos; at = shown.find("\xE2\x96\x81", at))
    shown.replace(at, 3, " ");
  for (const auto& tokenizer : tokenizers) {
    const std::string& expected = tokenizer == tokenizers.back() ? shown : text;
    for (const bool reads : {true, false}) {
      const EncodeOptions options = {.adds_special_tokens = false, .reads_special_tokens = reads};
      const auto ids = tokenizer->encode(text, options);
      for (const uint32_t id : ids) expect(id < tokenizer->vocabulary_size(), "ids of the vocabulary");
      // Behind a special token, a text begins anew and gets a space.
      const bool begins_anew =
          tokenizer == tokenizers.back() && reads && text.find("<s>") != std::string::npos;
      if (!begins_anew) expect(tokenizer->decode(ids) == expected, "the text out of its ids");
      expect(tokenizer->encode(text, options) == ids, "the same ids again, now that words are remembered");
    }
  }
  return 0;
}

}  // namespace lockstep::fuzz
