#include "lockstep/training/callbacks/fit_records.h"

#include <tuple>

#include <utility>

namespace lockstep {

EpochRecord epoch_record(const FitState& state, double seconds) {
  EpochRecord epoch{.epoch = state.epoch, .step = state.global_step, .seconds = seconds};
  const std::pair<const char*, std::optional<double>*> places[] = {
      {"loss", &epoch.loss},
      {"accuracy", &epoch.accuracy},
      {"validation_loss", &epoch.validation_loss},
      {"validation_accuracy", &epoch.validation_accuracy},
      {"learning_rate", &epoch.learning_rate},
      {"examples_per_second", &epoch.images_per_second},
      {"data_wait", &epoch.data_wait_share}};
  for (const auto& [name, value] : state.logs) {
    bool is_placed = false;
    for (const auto& [known, place] : places) {
      if (name != known) continue;
      *place = value;
      is_placed = true;
    }
    if (!is_placed) epoch.others.emplace_back(name, value);
  }
  return epoch;
}

void StepRecorder::begin_epoch(const FitState& state) {
  const std::chrono::duration<double> before(state.seconds);
  began_ = std::chrono::steady_clock::now() -
           std::chrono::duration_cast<std::chrono::steady_clock::duration>(before);
  last_ = {.seconds = state.seconds, .examples = state.examples, .roll_backs = state.num_roll_backs};
  if (state.examples > 0) std::tie(last_.loss_sum, last_.losses) = state.local_loss();
}

double StepRecorder::seconds() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - began_).count();
}

StepRecord StepRecorder::next(const FitState& state) {
  StepRecord step{.step = state.global_step, .learning_rate = state.learning_rate()};
  const auto [loss_sum, losses] = state.local_loss();
  const Totals now{.seconds = seconds(),
                   .loss_sum = loss_sum,
                   .losses = losses,
                   .examples = state.examples,
                   .roll_backs = state.num_roll_backs};
  const auto examples = static_cast<double>(now.examples - last_.examples);
  // Steps undone since may count in only one of the two totals.
  const bool are_comparable = now.losses > last_.losses && now.roll_backs == last_.roll_backs;
  if (are_comparable) step.loss = (now.loss_sum - last_.loss_sum) / (now.losses - last_.losses);
  if (now.seconds > last_.seconds) step.images_per_second = examples / (now.seconds - last_.seconds);
  last_ = now;
  return step;
}

}  // namespace lockstep
