#include "lockstep/apps/train_images/options/augmentation_choice.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <set>
#include <utility>
#include <vector>

#include "lockstep/apps/shared/command_line/number_argument.h"
#include "lockstep/apps/shared/command_line/usage_error.h"
#include "lockstep/runtime/base/internal/closest_name.h"

namespace lockstep::apps {
namespace {

constexpr const char* kFlag = "augment";
constexpr const char* kNone = "none";
constexpr IntegerRange kPaddings{.least = 1, .most = 2048};

/// A change with a number, from above 0 to `most`; 0: mixup's range.
struct NumberedChange {
  const char* name;
  double AugmentationChoice::*value;
  double most;
};
// A factor from 1 - X to 1 + X is never negative.
constexpr NumberedChange kNumbered[] = {
    {"rotate", &AugmentationChoice::rotate, 180},   {"brightness", &AugmentationChoice::brightness, 1},
    {"contrast", &AugmentationChoice::contrast, 1}, {"saturation", &AugmentationChoice::saturation, 1},
    {"hue", &AugmentationChoice::hue, 0.5},         {"mixup", &AugmentationChoice::mixup, 0}};

std::vector<std::string> names_of_changes() {
  std::vector<std::string> names{"crop", "flip"};
  for (const auto& change : kNumbered) names.emplace_back(change.name);
  return names;
}

double read_number(const std::string& spelling, const NumberedChange& change, const std::string& text) {
  if (change.most == 0) {
    const double alpha = parse_positive(spelling, text);
    if (alpha < 1e-6 || alpha > 1e6)
      throw UsageError(fmt::format("{}: expected a number from 1e-6 to 1e6, but got '{}'", spelling, text));
    return alpha;
  }
  const auto refuse = [&] {
    throw UsageError(fmt::format("{}: expected a number above 0 and at most {}, but got '{}'", spelling,
                                 change.most, text));
  };
  double value = 0;
  try {
    value = parse_positive(spelling, text);
  } catch (const UsageError&) {
    refuse();
  }
  if (value > change.most) refuse();
  return value;
}

/// Reads one change. `flag` is the flag as errors name it.
void read_change(const std::string& flag, const std::string& piece, AugmentationChoice& choice) {
  const auto equals = piece.find('=');
  const std::string name = piece.substr(0, equals);
  const std::string value = equals == std::string::npos ? "" : piece.substr(equals + 1);
  const std::string spelling = fmt::format("{}: {}", flag, name);
  if (name == "flip") {
    if (equals != std::string::npos)
      throw UsageError(fmt::format("{}: expected no value, but got '{}'", spelling, piece));
    choice.flip = true;
    return;
  }
  if (name == "crop") {
    choice.crop = parse_integer(spelling, value, kPaddings);
    return;
  }
  for (const auto& change : kNumbered) {
    if (name != change.name) continue;
    choice.*change.value = read_number(spelling, change, value);
    return;
  }
  const auto names = names_of_changes();
  throw UsageError(fmt::format("{}: expected {}, or a list of {} with commas between them, but got '{}'{}",
                               flag, kNone, fmt::join(names, ", "), piece, did_you_mean(name, names)));
}

}  // namespace

AugmentationChoice read_augmentation(const Arguments& given) {
  AugmentationChoice choice;
  if (!given.has(kFlag) || given.text(kFlag) == kNone) return choice;
  std::set<std::string> seen;
  for (const auto& piece : given.list(kFlag)) {
    const std::string name = piece.substr(0, piece.find('='));
    if (!seen.insert(name).second) given.refuse(kFlag, fmt::format("{} once", name));
    read_change(given.spelling(kFlag), piece, choice);
  }
  return choice;
}

std::string augmentation_text(const AugmentationChoice& choice) {
  std::vector<std::string> pieces;
  if (choice.crop > 0) pieces.push_back(fmt::format("crop={}", choice.crop));
  if (choice.flip) pieces.emplace_back("flip");
  for (const auto& change : kNumbered) {
    if (choice.*change.value > 0) pieces.push_back(fmt::format("{}={}", change.name, choice.*change.value));
  }
  return pieces.empty() ? kNone : fmt::format("{}", fmt::join(pieces, ","));
}

}  // namespace lockstep::apps
