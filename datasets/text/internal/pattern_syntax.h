#pragma once

#include <string>
#include <string_view>

namespace lockstep {

/// Translates a regular expression of a tokenizer's file, which is in Oniguruma's syntax, to PCRE2's. The two
/// read some patterns differently; this accepts only what has one meaning in both, or a translation. Throws
/// std::invalid_argument naming what it does not accept.
std::string to_pcre2_syntax(std::string_view pattern);

}  // namespace lockstep
