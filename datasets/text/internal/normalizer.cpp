#include "lockstep/datasets/text/internal/normalizer.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <new>
#include <stdexcept>

#include "lockstep/datasets/text/internal/utf8.h"

namespace lockstep {
namespace {

/// Returns the length of a start of `text` that has `form` already, so that only the rest is rewritten:
/// ASCII, and for NFC everything before the combining characters, which begin at U+0300. The character before
/// the first other one belongs to the rest, as the two may combine.
size_t normal_prefix(std::string_view text, UnicodeForm form) {
  const uint8_t limit = form == UnicodeForm::kNfc ? 0xCC : 0x80;
  const auto other =
      std::find_if(text.begin(), text.end(), [&](char byte) { return static_cast<uint8_t>(byte) >= limit; });
  // A continuation byte is below 0xCC, and follows a first byte below it.
  auto end = static_cast<size_t>(other - text.begin());
  if (end == text.size() || end == 0) return end;
  do --end;
  while (end > 0 && (static_cast<uint8_t>(text[end]) & 0xC0) == 0x80);
  return end;
}

void append_normalized(std::string_view text, UnicodeForm form, std::string& result) {
  const bool composes = form == UnicodeForm::kNfc || form == UnicodeForm::kNfkc;
  const bool is_compatible = form == UnicodeForm::kNfkc || form == UnicodeForm::kNfkd;
  const int options = UTF8PROC_STABLE | (composes ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE) |
                      (is_compatible ? UTF8PROC_COMPAT : 0);
  utf8proc_uint8_t* mapped = nullptr;
  const utf8proc_ssize_t size = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                             static_cast<utf8proc_ssize_t>(text.size()), &mapped,
                                             static_cast<utf8proc_option_t>(options));
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owned(mapped, &std::free);
  if (size == UTF8PROC_ERROR_NOMEM) throw std::bad_alloc();
  if (size < 0) throw std::length_error(std::string("cannot normalize a text: ") + utf8proc_errmsg(size));
  result.append(reinterpret_cast<const char*>(mapped), static_cast<size_t>(size));
}

/// Each returns whether it changes the text. If so, `result` is the new text.
bool rewrite(std::string_view text, UnicodeForm form, PieceStart, const RewrittenSize&, std::string& result) {
  const size_t prefix = normal_prefix(text, form);
  if (prefix == text.size()) return false;
  result = text.substr(0, prefix);
  append_normalized(text.substr(prefix), form, result);
  return true;
}

bool rewrite(std::string_view text, const PrependStep& step, PieceStart start, const RewrittenSize&,
             std::string& result) {
  if (text.empty() || start == PieceStart::kBrokenBytes) return false;
  result = step.text;
  result += text;
  return true;
}

bool rewrite(std::string_view text, const ReplaceStep& step, PieceStart, const RewrittenSize& limit,
             std::string& result) {
  if (text.find(step.from) == std::string_view::npos) return false;
  result.clear();
  append_replaced(text, step, limit, result);
  return true;
}

}  // namespace

std::string_view Normalizer::apply(std::string_view text, PieceStart start, std::string& buffer) const {
  const RewrittenSize limit(text.size());
  std::string result;
  for (const NormalizerStep& step : steps_) {
    const bool changes = std::visit(
        [&](const auto& rewriting) { return rewrite(text, rewriting, start, limit, result); }, step);
    if (!changes) continue;
    limit.check(result.size());
    buffer.swap(result);
    text = buffer;
  }
  return text;
}

}  // namespace lockstep
