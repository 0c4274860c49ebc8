#include "lockstep/apps/shared/monitoring/input_profile.h"

#include <fmt/format.h>

#include <algorithm>

namespace lockstep::apps {
namespace {

constexpr const char* kTraining = "training";

/// Groups digits as in 12,345,678.
std::string grouped(double value) {
  std::string digits = fmt::format("{:.0f}", value);
  for (auto place = static_cast<int>(digits.size()) - 3; place > 0; place -= 3)
    digits.insert(static_cast<size_t>(place), 1, ',');
  return digits;
}

std::string row_text(const InputStage& stage) {
  const double count = static_cast<double>(stage.count), bytes = static_cast<double>(stage.bytes);
  const bool is_timed = stage.seconds > 0;
  return fmt::format("  {:<16}{:>10.2f}{:>16}{:>12}\n", stage.name, stage.seconds,
                     is_timed && stage.count > 0 ? grouped(count / stage.seconds) : "-",
                     is_timed && stage.bytes > 0 ? fmt::format("{:.1f}", bytes / stage.seconds / 1e6) : "-");
}

const InputStage* slowest(const std::vector<InputStage>& stages) {
  const auto found = std::max_element(stages.begin(), stages.end(),
                                      [](const auto& a, const auto& b) { return a.seconds < b.seconds; });
  return found == stages.end() || found->seconds <= 0 ? nullptr : &*found;
}

double waited_share(const InputProfile& profile) {
  return profile.seconds > 0 ? profile.waited.value_or(0) / profile.seconds : 0;
}

std::string limit_text(const InputProfile& profile) {
  const std::string stage = limiting_stage(profile);
  if (stage.empty()) return "  nothing was measured\n";
  if (!profile.waited)
    return fmt::format("  the slowest stage is {}; steps may be computed meanwhile\n", stage);
  const double percent = 100 * waited_share(profile);
  return fmt::format("  {} limits the speed: the training waited for batches for {:.1f} % of {:.1f} s\n",
                     stage, percent, profile.seconds);
}

}  // namespace

InputProfile input_profile(const InputTimes& times, const std::string& examples, const TrainedSteps& steps) {
  const int64_t count = times.examples();
  const auto stage = [&](const std::string& name, InputPart part) {
    return InputStage{.name = name, .seconds = times.seconds(part), .count = count};
  };
  return {.examples = examples,
          .count = std::min(count, steps.examples),  // some were made ahead for steps that never came
          .seconds = steps.seconds,
          .waited = steps.waited,
          .stages = {stage("order", InputPart::kOrder), stage("dataset", InputPart::kDataset),
                     stage("map", InputPart::kMap), stage("copy", InputPart::kCopy)}};
}

std::string limiting_stage(const InputProfile& profile) {
  constexpr double kLittle = 0.03;
  if (profile.waited && profile.seconds > 0 && waited_share(profile) < kLittle) return kTraining;
  const InputStage* own = slowest(profile.stages);
  const InputStage* ahead = slowest(profile.ahead);
  if (ahead != nullptr && (own == nullptr || profile.waited_for_ahead > own->seconds)) return ahead->name;
  return own == nullptr ? "" : own->name;
}

std::string input_profile_text(const InputProfile& profile) {
  std::string text =
      fmt::format("{:<18}{:>10}{:>16}{:>12}\n", "input", "seconds", profile.examples + "/s", "MB/s");
  for (const auto& stage : profile.ahead) text += row_text(stage);
  if (!profile.ahead.empty())
    text += row_text({.name = "wait for these", .seconds = profile.waited_for_ahead});
  for (const auto& stage : profile.stages) text += row_text(stage);
  if (profile.waited)
    text += row_text({.name = kTraining,
                      .seconds = std::max(0.0, profile.seconds - *profile.waited),
                      .count = profile.count});
  return text + limit_text(profile);
}

}  // namespace lockstep::apps
