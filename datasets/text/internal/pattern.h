#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

struct pcre2_real_code_8;
struct pcre2_real_match_context_8;
struct pcre2_real_match_data_8;
struct pcre2_real_jit_stack_8;

namespace lockstep {

struct FreePcre2 {
  void operator()(pcre2_real_code_8* code) const;
  void operator()(pcre2_real_match_context_8* context) const;
  void operator()(pcre2_real_match_data_8* data) const;
  void operator()(pcre2_real_jit_stack_8* stack) const;
};

/// A compiled regular expression. Thread-safe.
class Pattern {
 public:
  /// Compiles a regular expression in Oniguruma's syntax. Throws std::invalid_argument naming what is not
  /// supported or wrong.
  static Pattern of_regex(std::string_view regex);
  /// Makes a pattern that matches `text` itself.
  static Pattern of_text(std::string_view text);

  const std::string& text() const { return text_; }

 private:
  friend class PatternMatcher;
  Pattern(std::string_view text, const std::string& pcre2, bool is_literal);

  std::string text_;
  std::unique_ptr<pcre2_real_code_8, FreePcre2> code_;
};

/// The memory that finding matches needs. Used by one thread at a time, for any patterns.
class PatternMatcher {
 public:
  struct Match {
    size_t begin = 0;
    size_t end = 0;
  };

  PatternMatcher();

  /// Returns the first match at `from` or after it. `text` is valid UTF-8, and `from` the beginning of a
  /// character. Throws DataError if the pattern needs too many steps at one place of the text: 10 million, or
  /// 64 for each byte of a long text. There is no limit for all places together.
  std::optional<Match> find(const Pattern& pattern, std::string_view text, size_t from);

 private:
  std::unique_ptr<pcre2_real_match_context_8, FreePcre2> context_;
  std::unique_ptr<pcre2_real_match_data_8, FreePcre2> data_;
  std::unique_ptr<pcre2_real_jit_stack_8, FreePcre2> stack_;
  const size_t* place_ = nullptr;  // of the last match
};

}  // namespace lockstep
