#include "lockstep/strategies/core/internal/measured_weights.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <utility>

namespace lockstep {
namespace {

constexpr int kRounds = 4;
/// Batches that were made ahead of a change do not count, nor do those with too few examples for all
/// replicas.
constexpr int kMostRuns = 60;
/// The first step with new sizes allocates, and chooses algorithms.
constexpr int kFirstSteps = 1;
constexpr int kCountedSteps = 4;
/// Times that differ by less are taken as equal.
constexpr double kTolerance = 0.02;

}  // namespace

MeasuredWeights::MeasuredWeights(std::shared_ptr<BatchShares> shares, std::vector<int> replicas)
    : shares_(std::move(shares)),
      replicas_(std::move(replicas)),
      laps_(replicas_.size()),
      rounds_left_(kRounds),
      runs_left_(kMostRuns) {}

void MeasuredWeights::begin(int rank, Clock::time_point begin, double waited) {
  laps_[static_cast<size_t>(rank)] = {begin, waited, 0};
}

void MeasuredWeights::note_gradients(int rank, Clock::time_point now, double waited) {
  Lap& lap = laps_[static_cast<size_t>(rank)];
  if (lap.seconds > 0) return;
  lap.seconds = std::chrono::duration<double>(now - lap.begin).count() - (waited - lap.waited_before);
}

void MeasuredWeights::end_run(const std::optional<BatchSizes>& sizes) {
  const bool is_step =
      std::all_of(laps_.begin(), laps_.end(), [](const Lap& lap) { return lap.seconds > 0; });
  if (is_step && sizes) take(*sizes);
  for (Lap& lap : laps_) lap.seconds = 0;
  if (!is_step || --runs_left_ > 0 || rounds_left_ == 0) return;
  rounds_left_ = 0;
  if (num_steps_ == 0) shares_->set_weights(confirmed_);
}

void MeasuredWeights::take(const BatchSizes& sizes) {
  const std::vector<int64_t> bounds = shares_->cut(sizes.global);
  const size_t num_replicas = bounds.size() - 1;
  std::vector<double> seconds(num_replicas);
  std::vector<int64_t> examples(num_replicas);
  for (size_t rank = 0; rank < laps_.size(); ++rank) {
    const auto replica = static_cast<size_t>(replicas_[rank]);
    seconds[replica] = std::max(seconds[replica], laps_[rank].seconds);
    examples[replica] = sizes.local[rank];
    // A replica without examples shows no rate.
    if (examples[replica] == 0 || examples[replica] != bounds[replica + 1] - bounds[replica]) return;
  }
  if (++num_steps_ <= kFirstSteps) return;
  for (size_t replica = 0; replica < num_replicas; ++replica)
    seconds[replica] /= static_cast<double>(examples[replica]);
  times_.push_back(std::move(seconds));
  num_examples_ = std::move(examples);
  if (num_steps_ == kFirstSteps + kCountedSteps) end_round();
}

void MeasuredWeights::end_round() {
  std::vector<double> weights;
  double longest = 0;
  double shortest = 0;
  for (size_t replica = 0; replica < num_examples_.size(); ++replica) {
    const double each = median_time(replica);
    const double time = each * static_cast<double>(num_examples_[replica]);
    longest = replica == 0 ? time : std::max(longest, time);
    shortest = replica == 0 ? time : std::min(shortest, time);
    weights.push_back(1 / each);
  }
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  for (double& weight : weights) weight /= sum;
  times_.clear();
  num_steps_ = 0;
  --rounds_left_;
  confirmed_ = shares_->weights();
  if (longest - shortest <= kTolerance * longest) {
    rounds_left_ = 0;
    return;
  }
  if (rounds_left_ == 0) {
    // By now only noise changes the weights.
    for (size_t replica = 0; replica < weights.size(); ++replica)
      weights[replica] = (weights[replica] + found_[replica]) / 2;
  }
  found_ = weights;
  shares_->set_weights(std::move(weights));
}

double MeasuredWeights::median_time(size_t replica) const {
  std::vector<double> sorted;
  for (const auto& of_replicas : times_) sorted.push_back(of_replicas[replica]);
  std::sort(sorted.begin(), sorted.end());
  return sorted[(sorted.size() - 1) / 2];
}

}  // namespace lockstep
