#define PCRE2_CODE_UNIT_WIDTH 8
#include "lockstep/datasets/text/internal/pattern.h"

#include <pcre2.h>

#include <algorithm>
#include <array>
#include <limits>
#include <new>
#include <stdexcept>

#include "lockstep/datasets/files/data_error.h"
#include "lockstep/datasets/text/internal/json_field.h"
#include "lockstep/datasets/text/internal/pattern_syntax.h"

namespace lockstep {
namespace {

constexpr size_t kMaxPatternBytes = size_t{16} << 10;

std::string pcre2_message(int code) {
  std::array<PCRE2_UCHAR, 256> text{};
  pcre2_get_error_message(code, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

}  // namespace

void FreePcre2::operator()(pcre2_real_code_8* code) const {
  pcre2_code_free(code);
}
void FreePcre2::operator()(pcre2_real_match_context_8* context) const {
  pcre2_match_context_free(context);
}
void FreePcre2::operator()(pcre2_real_match_data_8* data) const {
  pcre2_match_data_free(data);
}
void FreePcre2::operator()(pcre2_real_jit_stack_8* stack) const {
  pcre2_jit_stack_free(stack);
}

Pattern::Pattern(std::string_view text, const std::string& pcre2, bool is_literal) : text_(text) {
  if (text.empty()) throw std::invalid_argument("an empty one");
  if (text.size() > kMaxPatternBytes)
    throw std::invalid_argument("one of " + std::to_string(text.size()) + " bytes");
  const std::unique_ptr<pcre2_compile_context, decltype(&pcre2_compile_context_free)> context(
      pcre2_compile_context_create(nullptr), &pcre2_compile_context_free);
  if (!context) throw std::bad_alloc();
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  const uint32_t options = PCRE2_UTF | (is_literal ? PCRE2_LITERAL : PCRE2_UCP);
  int error = 0;
  PCRE2_SIZE place = 0;
  code_.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pcre2.data()), pcre2.size(), options, &error, &place,
                            context.get()));
  if (!code_) throw std::invalid_argument("'" + text_ + "': " + pcre2_message(error));
  // Some systems forbid programs to make code; matches are slower then.
  pcre2_jit_compile(code_.get(), PCRE2_JIT_COMPLETE);
}

Pattern Pattern::of_regex(std::string_view regex) {
  if (regex.size() > kMaxPatternBytes) return {regex, "", false};
  return {regex, to_pcre2_syntax(regex), false};
}

Pattern Pattern::of_text(std::string_view text) {
  return {text, std::string(text), true};
}

PatternMatcher::PatternMatcher()
    : context_(pcre2_match_context_create(nullptr)), data_(pcre2_match_data_create(1, nullptr)) {
  // Most matches need hardly any; patterns with groups that repeat need some for each repetition.
  constexpr size_t kFirstStackBytes = size_t{32} << 10;
  constexpr size_t kMaxStackBytes = size_t{64} << 20;
  stack_.reset(pcre2_jit_stack_create(kFirstStackBytes, kMaxStackBytes, nullptr));  // none without JIT
  if (!context_ || !data_) throw std::bad_alloc();
  if (stack_) pcre2_jit_stack_assign(context_.get(), nullptr, stack_.get());
  constexpr uint32_t kMaxHeapKibibytes = 1U << 19;
  pcre2_set_heap_limit(context_.get(), kMaxHeapKibibytes);
  place_ = pcre2_get_ovector_pointer(data_.get());
}

std::optional<PatternMatcher::Match> PatternMatcher::find(const Pattern& pattern, std::string_view text,
                                                          size_t from) {
  // A pattern for tokenizers takes a few steps for each character.
  constexpr uint64_t kLeastSteps = 10'000'000;
  constexpr uint64_t kStepsAByte = 64;
  pcre2_set_match_limit(context_.get(), static_cast<uint32_t>(std::min<uint64_t>(
                                            std::max(kLeastSteps, kStepsAByte * (text.size() - from)),
                                            std::numeric_limits<uint32_t>::max())));
  const auto match = [&](uint32_t options) {
    return pcre2_match(pattern.code_.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), from,
                       PCRE2_NO_UTF_CHECK | options, data_.get(), context_.get());
  };
  int result = match(0);
  if (result == PCRE2_ERROR_JIT_STACKLIMIT) result = match(PCRE2_NO_JIT);
  if (result == PCRE2_ERROR_NOMATCH) return std::nullopt;
  // With room for one place, 0 says that there are groups, too.
  if (result < 0)
    throw DataError("pattern " + shown_text(pattern.text(), 200) + ": " + pcre2_message(result));
  return Match{.begin = place_[0], .end = place_[1]};
}

}  // namespace lockstep
