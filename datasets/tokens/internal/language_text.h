#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/datasets/tokens/internal/language_grammar.h"

namespace lockstep {

/// Implements GeneratedLanguage::text().
std::string language_text(const std::vector<LanguageWord>& words, std::span<const uint32_t> tokens);

/// Implements GeneratedLanguage::tokens().
std::vector<uint32_t> language_tokens(const std::vector<LanguageWord>& words, std::string_view text);

}  // namespace lockstep
