#include "lockstep/strategies/pipeline/pipeline_stream.h"

#include <algorithm>
#include <string>

#include "lockstep/runtime/base/errors.h"

namespace lockstep {
namespace {

using Op = PipelineOp;

/// The micro-batches of the batches of a stream.
struct StreamedBatches {
  std::vector<size_t> batch_of;  // for each micro-batch
  std::vector<int> last;         // for each batch
};

StreamedBatches numbered(const std::vector<int>& micro_batches) {
  StreamedBatches batches;
  for (size_t batch = 0; batch < micro_batches.size(); ++batch) {
    batches.batch_of.insert(batches.batch_of.end(), static_cast<size_t>(micro_batches[batch]), batch);
    batches.last.push_back(static_cast<int>(batches.batch_of.size()) - 1);
  }
  return batches;
}

/// Lets ranks compute in steps of equal time. Of its stages that have an input, a rank chooses the one with
/// the earliest micro-batch. At most `ranks` batches are under way.
std::vector<std::vector<PipelineAction>> computed_in_steps(const std::vector<int>& rank_of_stage, int ranks,
                                                           const StreamedBatches& batches) {
  const size_t num_stages = rank_of_stage.size();
  const auto count = static_cast<int>(batches.batch_of.size());
  std::vector<int> done(num_stages, 0);  // micro-batches of each stage
  const auto can_begin = [&](size_t stage) {
    const int next = done[stage];
    if (next == count) return false;
    if (stage > 0) return done[stage - 1] > next;
    const size_t batch = batches.batch_of[static_cast<size_t>(next)];
    const auto most = static_cast<size_t>(ranks);
    return batch < most || done.back() > batches.last[batch - most];
  };
  std::vector<std::vector<PipelineAction>> orders(static_cast<size_t>(ranks));
  while (done.back() < count) {
    std::vector<size_t> begun;
    for (int rank = 0; rank < ranks; ++rank) {
      size_t best = num_stages;
      for (size_t stage = 0; stage < num_stages; ++stage) {
        if (rank_of_stage[stage] != rank || !can_begin(stage)) continue;
        if (best == num_stages || done[stage] < done[best]) best = stage;
      }
      if (best == num_stages) continue;
      orders[static_cast<size_t>(rank)].push_back({Op::kForward, static_cast<int>(best), done[best]});
      begun.push_back(best);
    }
    for (const size_t stage : begun) ++done[stage];
  }
  return orders;
}

/// Returns the number of a rank's actions before it takes each result.
std::vector<size_t> takes_of(const std::vector<PipelineAction>& actions, int last_stage, int ranks,
                             const StreamedBatches& batches) {
  std::vector<size_t> takes(batches.last.size(), actions.size());
  const auto has_last = std::any_of(actions.begin(), actions.end(), [&](const auto& action) {
    return action.op == Op::kForward && action.stage == last_stage;
  });
  size_t next = 0;  // whose place is not known yet
  for (size_t i = 0; i < actions.size(); ++i) {
    const auto& [op, stage, micro_batch] = actions[i];
    const size_t batch = batches.batch_of[static_cast<size_t>(micro_batch)];
    if (!has_last) {
      while (next + static_cast<size_t>(ranks) <= batch) takes[next++] = i;
    } else if (op == Op::kForward && stage == last_stage && batches.last[batch] == micro_batch) {
      takes[batch] = i + 1;
    }
  }
  return takes;
}

}  // namespace

PipelineStream plan_pipeline_stream(const std::vector<int>& rank_of_stage,
                                    const std::vector<int>& micro_batches) {
  if (rank_of_stage.empty() || micro_batches.empty()) {
    throw InvalidArgument("[plan_pipeline_stream] expected stages and batches, but got " +
                          std::to_string(rank_of_stage.size()) + " and " +
                          std::to_string(micro_batches.size()));
  }
  if (const int least = *std::min_element(micro_batches.begin(), micro_batches.end()); least < 1) {
    throw InvalidArgument("[plan_pipeline_stream] expected at least 1 micro-batch in each batch, but got " +
                          std::to_string(least));
  }
  if (const int least = *std::min_element(rank_of_stage.begin(), rank_of_stage.end()); least < 0) {
    throw InvalidArgument("[plan_pipeline_stream] expected ranks from 0 on, but got " +
                          std::to_string(least));
  }
  const int ranks = *std::max_element(rank_of_stage.begin(), rank_of_stage.end()) + 1;
  const StreamedBatches batches = numbered(micro_batches);
  PipelineStream stream{.schedule = {"forward", static_cast<int>(batches.batch_of.size()), rank_of_stage,
                                     computed_in_steps(rank_of_stage, ranks, batches)},
                        .last_micro_batches = batches.last,
                        .takes = {}};
  stream.schedule = with_transfers(std::move(stream.schedule));
  for (const auto& actions : stream.schedule.actions)
    stream.takes.push_back(takes_of(actions, stream.schedule.num_stages() - 1, ranks, batches));
  return stream;
}

void run_pipeline_stream_rank(const PipelineStream& stream, int rank, PipelineWork& work,
                              const std::function<void(size_t batch)>& take) {
  if (rank < 0 || rank >= stream.schedule.num_ranks()) {
    throw InvalidArgument("[run_pipeline_stream_rank] expected a rank below " +
                          std::to_string(stream.schedule.num_ranks()) + ", but got " + std::to_string(rank));
  }
  const auto& actions = stream.schedule.actions[static_cast<size_t>(rank)];
  const auto& takes = stream.takes[static_cast<size_t>(rank)];
  size_t batch = 0;
  for (size_t i = 0; i <= actions.size(); ++i) {
    for (; batch < takes.size() && takes[batch] == i; ++batch) take(batch);
    if (i < actions.size()) do_pipeline_action(work, actions[i]);
  }
}

}  // namespace lockstep
