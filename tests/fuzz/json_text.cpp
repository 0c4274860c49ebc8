#include "lockstep/datasets/tokens/internal/json_text.h"

#include <nlohmann/json.hpp>

#include "lockstep/tests/fuzz/fuzz.h"

namespace lockstep::fuzz {
namespace {

/// Returns the text of the line, by parsing the whole document.
std::optional<std::string> text_by_document(std::string_view line) {
  const auto document = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!document.is_object() || !document.contains("text") || !document["text"].is_string())
    return std::nullopt;
  return document["text"].get<std::string>();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto line = text_of(data, size);
  std::string text;
  const auto problem = parse_json_text(line, "text", text);
  if (problem) expect_plain_line(*problem);
  const auto expected = text_by_document(line);
  // A field that is given twice, first as something else, is refused although the last one counts.
  if (!problem) expect(expected == text, "the text of the document");
  if (!expected) expect(problem.has_value(), "a problem with what is no text");
  return 0;
}

}  // namespace lockstep::fuzz
