#include "lockstep/datasets/text/internal/pattern_syntax.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdint>
#include <optional>
#include <stdexcept>

namespace lockstep {
namespace {

// PCRE2's \s includes U+180E, which has not been white space since Unicode 6.3, and Oniguruma's does not.
constexpr std::string_view kSpaces =
    R"(\x09-\x0D\x20\x{85}\x{A0}\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F}\x{205F}\x{3000})";
constexpr std::string_view kNoSpaces =
    R"(\x00-\x08\x0E-\x1F\x21-\x{84}\x{86}-\x{9F}\x{A1}-\x{167F}\x{1681}-\x{1FFF}\x{200B}-\x{2027})"
    R"(\x{202A}-\x{202E}\x{2030}-\x{205E}\x{2060}-\x{2FFF}\x{3001}-\x{10FFFF})";

constexpr auto kCategories = std::to_array<std::string_view>(
    {"L",  "Lu", "Ll", "Lt", "Lm", "Lo", "M", "Mn", "Mc", "Me", "N",  "Nd", "Nl", "No", "P", "Pc",
     "Pd", "Ps", "Pe", "Pi", "Pf", "Po", "S", "Sm", "Sc", "Sk", "So", "Z",  "Zs", "Zl", "Zp"});
constexpr auto kScripts =
    std::to_array<std::string_view>({"Arabic", "Cyrillic", "Devanagari", "Greek", "Han", "Hangul", "Hebrew",
                                     "Hiragana", "Katakana", "Latin", "Thai"});

// Since 10.40, the name alone also means characters that a script shares with others.
#if PCRE2_MAJOR > 10 || PCRE2_MINOR >= 40
constexpr std::string_view kScriptPrefix = "sc:";
#else
constexpr std::string_view kScriptPrefix;
#endif

bool is_alphanumeric(char byte) {
  return std::isalnum(static_cast<unsigned char>(byte)) != 0;
}

template <typename Names>
bool is_one_of(std::string_view name, const Names& names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

class SyntaxTranslator {
 public:
  explicit SyntaxTranslator(std::string_view pattern) : rest_(pattern) {}

  std::string translate() {
    while (!rest_.empty()) {
      const char byte = rest_.front();
      if (byte == '\\') {
        take_escape(false);
      } else if (byte == '[') {
        take_class();
      } else if (byte == '(') {
        take_group();
      } else if (byte == '{') {
        take_counts();
      } else if (byte == '^' || byte == '$') {
        // In Oniguruma, these match at every line.
        put(byte == '^' ? "(?m:^)" : "(?m:$)", 1);
      } else {
        put(rest_.substr(0, 1), 1);
      }
    }
    return std::move(result_);
  }

 private:
  [[noreturn]] static void refuse(std::string_view what) {
    throw std::invalid_argument("'" + std::string(what) + "'");
  }

  void put(std::string_view translation, size_t used) {
    result_ += translation;
    rest_.remove_prefix(used);
  }

  /// Takes the escape that the rest begins with; within a class, sets of characters have no brackets.
  void take_escape(bool in_class) {
    if (rest_.size() < 2) refuse(rest_);
    const char kind = rest_[1];
    switch (kind) {
      case 's':
        return put(in_class ? std::string(kSpaces) : "[" + std::string(kSpaces) + "]", 2);
      case 'S':
        return put(in_class ? std::string(kNoSpaces) : "[^" + std::string(kSpaces) + "]", 2);
      case 'd':
        return put(R"(\p{Nd})", 2);
      case 'D':
        return put(R"(\P{Nd})", 2);
      case 'r':
      case 'n':
      case 't':
      case 'f':
        return put(rest_.substr(0, 2), 2);
      case 'v':
        return put(R"(\x0B)", 2);
      case 'p':
      case 'P':
        return take_property();
      case 'x':
      case 'u':
        return take_number();
      default:
        if (is_alphanumeric(kind) || static_cast<uint8_t>(kind) >= 0x80) refuse(rest_.substr(0, 2));
        put(rest_.substr(0, 2), 2);
    }
  }

  /// \p{L}, \P{L} or \p{^L}.
  void take_property() {
    const size_t end = rest_.find('}');
    if (rest_.size() < 3 || rest_[2] != '{' || end == std::string_view::npos) refuse(rest_.substr(0, 2));
    std::string_view name = rest_.substr(3, end - 3);
    bool is_negated = rest_[1] == 'P';
    if (name.starts_with('^')) {
      is_negated = !is_negated;
      name.remove_prefix(1);
    }
    std::string full(name);
    if (is_one_of(name, kScripts)) {
      full = std::string(kScriptPrefix) + full;
    } else if (!is_one_of(name, kCategories)) {
      refuse(rest_.substr(0, end + 1));
    }
    put((is_negated ? R"(\P{)" : R"(\p{)") + full + "}", end + 1);
  }

  /// \x41, \x{1F600} or \u3000.
  void take_number() {
    std::string_view digits;
    size_t used = 0;
    if (rest_[1] == 'u') {
      digits = rest_.substr(2, 4);
      used = 6;
    } else if (rest_.size() > 2 && rest_[2] == '{') {
      digits = rest_.substr(3, std::min(rest_.find('}'), rest_.size()) - 3);
      used = digits.size() + 4;
    } else {
      // From 80 on, it would be a byte in Oniguruma and a character in PCRE2.
      digits = rest_.substr(2, 2);
      used = 4;
      if (!digits.empty() && digits.front() > '7') refuse(rest_.substr(0, 4));
    }
    const bool is_complete = used <= rest_.size() && !digits.empty() && digits.size() <= 6;
    const auto is_hex = [](char digit) { return std::isxdigit(static_cast<unsigned char>(digit)) != 0; };
    if (!is_complete || !std::all_of(digits.begin(), digits.end(), is_hex)) refuse(rest_.substr(0, 2));
    put(R"(\x{)" + std::string(digits) + "}", used);
  }

  void take_class() {
    put("[", 1);
    if (rest_.starts_with('^')) put("^", 1);
    if (rest_.starts_with(']')) refuse("[]");
    bool is_first = true;
    bool follows_set = false;
    bool follows_hyphen = false;  // one that can make a range
    for (; !rest_.starts_with(']'); is_first = false) {
      if (rest_.empty()) refuse("[");
      if (rest_.starts_with('[')) refuse("[ within [");
      if (rest_.starts_with("&&")) refuse("&&");
      // A set of characters begins and ends no range. PCRE2 would take a part of \s for an end of one.
      const bool is_hyphen = rest_.starts_with('-');
      const bool is_set = begins_with_set(rest_);
      if ((follows_set && is_hyphen && !rest_.starts_with("-]")) || (follows_hyphen && is_set))
        refuse("a range from or to a set");
      if (rest_.starts_with('\\')) {
        take_escape(true);
      } else {
        put(rest_.substr(0, 1), 1);
      }
      follows_set = is_set;
      follows_hyphen = is_hyphen && !is_first;
    }
    put("]", 1);
  }

  static bool begins_with_set(std::string_view text) {
    constexpr std::string_view kSets = "sSdDpP";
    return text.size() > 1 && text[0] == '\\' && kSets.find(text[1]) != std::string_view::npos;
  }

  void take_group() {
    constexpr auto kKinds =
        std::to_array<std::string_view>({"(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>", "(?i:"});
    if (rest_.size() < 2 || rest_[1] != '?') return put("(?:", 1);  // nothing refers to what it captures
    for (const std::string_view kind : kKinds)
      if (rest_.starts_with(kind)) return put(kind, kind.size());
    refuse(rest_.substr(0, 4));
  }

  /// {2}, {1,3}, {1,} or {,3}.
  void take_counts() {
    const size_t end = rest_.find('}');
    if (end == std::string_view::npos) refuse("{");
    const std::string_view counts = rest_.substr(1, end - 1);
    const std::string_view whole = rest_.substr(0, end + 1);
    const auto is_count = [](char byte) { return byte == ',' || (byte >= '0' && byte <= '9'); };
    if (counts.empty() || counts == "," || std::count(counts.begin(), counts.end(), ',') > 1 ||
        !std::all_of(counts.begin(), counts.end(), is_count)) {
      refuse(whole);
    }
    // Further signs mean "possessive" or "lazy" to one and a second repetition to the other.
    const char next = end + 1 < rest_.size() ? rest_[end + 1] : ' ';
    const bool is_lazy = next == '?' && counts.find(',') != std::string_view::npos;
    if (next == '+' || next == '*' || next == '{' || (next == '?' && !is_lazy))
      refuse(rest_.substr(0, end + 2));
    put((counts.front() == ',' ? "{0" : "{") + std::string(counts) + "}", end + 1);
  }

  std::string_view rest_;
  std::string result_;
};

}  // namespace

std::string to_pcre2_syntax(std::string_view pattern) {
  return SyntaxTranslator(pattern).translate();
}

}  // namespace lockstep
