#include <nlohmann/json.hpp>
#include <string>

#include "lockstep/datasets/files/data_error.h"
#include "lockstep/datasets/text/byte_pair_tokenizer.h"
#include "lockstep/tests/datasets/text/small_tokenizers.h"
#include "lockstep/tests/fuzz/fuzz.h"

namespace lockstep::fuzz {
namespace {

/// Adds the tokens of all bytes, since nothing is accepted without them and random changes rarely keep them
/// all.
std::string completed(std::string_view text) {
  auto json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("model") || !json["model"].is_object()) return std::string(text);
  auto& vocabulary = json["model"]["vocab"];
  if (!vocabulary.is_object()) return std::string(text);
  for (const bool is_byte_level : {true, false}) {
    for (int byte = 0; byte < 256; ++byte) {
      const std::string token = testing::token_of_byte(byte, is_byte_level);
      if (!vocabulary.contains(token)) vocabulary[token] = 1000 + (is_byte_level ? 0 : 256) + byte;
    }
  }
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

void read(std::string_view text) {
  const MemoryFile file(text);
  const auto tokenizer =
      accepted<DataError>([&] { return BytePairTokenizer(file.path()); },
                          [&](std::string_view message) {
                            expect(message.starts_with(file.path() + ": "), "the file's name");
                            expect_plain_line(message);
                          });
  if (!tokenizer) return;
  for (const std::string_view words : {"Hello there,  it's 1234\n\n x",
                                       "\xC3\xA9\xCC\x81 \xE6\x96\x87\xE2\x96\x81\xFF<s><|endoftext|>", ""}) {
    // A file may have a pattern that takes too many steps, or make a text too long.
    const auto ids = accepted<DataError>([&] { return tokenizer->encode(words); }, expect_plain_line);
    if (!ids) continue;
    for (const uint32_t id : *ids) expect(id < tokenizer->vocabulary_size(), "ids of the vocabulary");
    for (const bool skips : {false, true})
      accepted<DataError>([&] { return tokenizer->decode(*ids, {.skips_special_tokens = skips}); },
                          expect_plain_line);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto text = text_of(data, size);
  read(text);
  const std::string whole = completed(text);
  if (whole != text) read(whole);
  return 0;
}

}  // namespace lockstep::fuzz
