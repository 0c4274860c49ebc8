#include "lockstep/datasets/tokens/internal/language_names.h"

#include <cstddef>
#include <string_view>

namespace lockstep {
namespace {

constexpr int kBeginnings = 16;

/// Parts of which names are made: each beginning goes with each ending.
struct NameParts {
  std::string_view beginnings[kBeginnings];
  std::string_view endings[kMostNames / kBeginnings];

  std::string name(int number) const {
    const auto place = static_cast<size_t>(number);
    return std::string(beginnings[place % kBeginnings]).append(endings[place / kBeginnings]);
  }
};

constexpr NameParts kGiven{{"Al", "Ber", "Cor", "Del", "Ed", "Fen", "Gar", "Hil", "Is", "Jor", "Kel", "Lor",
                            "Mar", "Nel", "Os", "Per"},
                           {"win", "da", "ric", "by", "mund", "na", "ic", "a"}};
constexpr NameParts kFamily{{"Ash", "Birch", "Clay", "Dun", "Elm", "Fair", "Green", "Hazel", "Iron", "Kings",
                             "Long", "Moor", "North", "Oak", "Raven", "Stone"},
                            {"croft", "dale", "field", "gate", "hill", "ley", "wood", "worth"}};
constexpr NameParts kTown{{"Ald", "Brad", "Chel", "Dor", "East", "Farn", "Graf", "Har", "Kirk", "Lan", "Mil",
                           "New", "Pen", "Rock", "Sal", "Wes"},
                          {"bury", "caster", "ford", "ham", "mouth", "port", "stead", "ton"}};

}  // namespace

std::string given_name(int number) {
  return kGiven.name(number);
}

std::string family_name(int number) {
  return kFamily.name(number);
}

std::string town_name(int number) {
  return "lives in " + kTown.name(number);
}

}  // namespace lockstep
