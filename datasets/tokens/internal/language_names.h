#pragma once

#include <string>

namespace lockstep {

/// The most given names, family names and towns that the generated language can have of each.
inline constexpr int kMostNames = 128;

/// Return the names with number `number`, below kMostNames. All of them differ from each other and from the
/// other words of the language.
std::string given_name(int number);
std::string family_name(int number);
/// With the verb before it.
std::string town_name(int number);

}  // namespace lockstep
