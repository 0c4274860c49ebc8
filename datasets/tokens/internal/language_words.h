#pragma once

#include <string_view>

namespace lockstep {

/// The words of the generated language. A class of subjects has a row of nouns, an ending and a pronoun.
inline constexpr std::string_view kNouns[6][4] = {
    {"the king", "the monk", "the miller", "the baker"},  {"the queen", "the nun", "the weaver", "the witch"},
    {"the wolves", "the geese", "the bees", "the crows"}, {"the sun", "the wind", "the rain", "the moon"},
    {"the ship", "the cart", "the mule", "the ox"},       {"the oak", "the rose", "the fern", "the pine"}};
inline constexpr std::string_view kEndings[6] = {"eth", "est", "en", "s", "ing", "ed"};
inline constexpr std::string_view kPronouns[6] = {"for him", "for her",  "for them",
                                                  "for us",  "for thee", "for me"};
inline constexpr std::string_view kPrepositions[4] = {"near", "under", "behind", "beside"};
inline constexpr std::string_view kPlaces[8] = {"the old mill", "the stone bridge", "the tower",
                                                "the church",   "the dark forest",  "the river",
                                                "the market",   "the garden"};
inline constexpr std::string_view kVerbs[8] = {"keep", "find", "mend", "paint",
                                               "hold", "send", "sell", "want"};
inline constexpr std::string_view kNumbers[9] = {"one", "two",   "three", "four", "five",
                                                 "six", "seven", "eight", "nine"};
inline constexpr std::string_view kItems[8] = {"cups", "hats", "pins",  "keys",
                                               "maps", "pots", "rings", "bells"};
inline constexpr std::string_view kOpening[4] = {"(", "[", "{", "<"};
inline constexpr std::string_view kClosing[4] = {")", "]", "}", ">"};

}  // namespace lockstep
