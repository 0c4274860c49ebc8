#include "lockstep/training/planning/internal/planned_stages.h"

#include <c10/util/StringUtil.h>

#include <algorithm>
#include <numeric>
#include <string>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/strategies/pipeline/internal/pipeline_cut.h"

namespace lockstep {
namespace {

using Kind = RecordedEvent::Kind;

/// Returns the calls with which the pipeline's blocks begin.
std::vector<size_t> blocks_of(const RecordedStep& record, const PlannedPipeline& pipeline) {
  std::vector<size_t> blocks = pipeline.blocks;
  if (blocks.empty()) {
    blocks.resize(record.calls.size());
    std::iota(blocks.begin(), blocks.end(), size_t{0});
  }
  const bool are_ordered =
      std::adjacent_find(blocks.begin(), blocks.end(), std::greater_equal<>()) == blocks.end();
  if (blocks.empty() || !are_ordered || blocks.front() != 0 || blocks.back() >= record.calls.size()) {
    throw InvalidArgument(
        c10::str("[plan_memory] expected blocks of a pipeline that begin with call 0 of the "
                 "record, in order and below its ",
                 record.calls.size(), " calls, but got ", blocks.size(), " that end with ",
                 blocks.empty() ? 0 : blocks.back()));
  }
  return blocks;
}

/// Marks the parameters that some calls use.
std::vector<bool> parameters_of(const RecordedStep& record, size_t first_call, size_t end_call) {
  std::vector<bool> is_used_block(record.blocks.size(), false);
  for (size_t call = first_call; call < end_call; ++call)
    is_used_block[static_cast<size_t>(record.calls[call].block)] = true;
  std::vector<bool> has_parameter;
  has_parameter.reserve(record.parameters.size());
  for (const auto& parameter : record.parameters)
    has_parameter.push_back(parameter.block >= 0 && is_used_block[static_cast<size_t>(parameter.block)]);
  return has_parameter;
}

/// Returns the costs by which the library cuts: bytes of parameters.
std::vector<double> costs_of(const RecordedStep& record, const PlannedPipeline& pipeline,
                             const std::vector<size_t>& blocks) {
  if (!pipeline.costs.empty()) {
    if (pipeline.costs.size() == blocks.size()) return pipeline.costs;
    throw InvalidArgument(c10::str("[plan_memory] expected a cost of each of ", blocks.size(),
                                   " blocks of the pipeline, but got ", pipeline.costs.size()));
  }
  std::vector<double> costs;
  for (size_t i = 0; i < blocks.size(); ++i) {
    const size_t end = i + 1 < blocks.size() ? blocks[i + 1] : record.calls.size();
    const auto has_parameter = parameters_of(record, blocks[i], end);
    double bytes = 0;
    for (size_t p = 0; p < has_parameter.size(); ++p) {
      const auto& own = record.parameters[p];
      if (has_parameter[p]) bytes += static_cast<double>(own.elements * own.element_bytes * own.num_slices);
    }
    costs.push_back(bytes);
  }
  return costs;
}

}  // namespace

std::vector<PlannedStage> planned_stages(const RecordedStep& record, const PlannedPipeline& pipeline,
                                         int num_stages) {
  const auto outside = std::find_if(record.parameters.begin(), record.parameters.end(),
                                    [](const auto& parameter) { return parameter.block < 0; });
  if (outside != record.parameters.end()) {
    throw InvalidArgument(
        "[plan_memory] expected a model whose parameters are all in blocks, to cut it into "
        "stages, but '" +
        outside->name + "' is in none");
  }
  const auto blocks = blocks_of(record, pipeline);
  const auto stages = static_cast<size_t>(num_stages);
  const auto firsts = pipeline.cuts.empty() ? cut_into_stages(costs_of(record, pipeline, blocks), stages)
                                            : stages_cut_at(pipeline.cuts, blocks.size(), stages);
  const auto forward_end = std::find_if(record.events.begin(), record.events.end(),
                                        [](const auto& event) { return event.kind == Kind::kForwardEnds; });
  const auto loss_at = static_cast<int>(forward_end - record.events.begin());
  const auto end = static_cast<int>(record.events.size());
  std::vector<PlannedStage> planned(stages);
  int backward_begin = loss_at;
  for (size_t stage = stages; stage-- > 0;) {
    auto& own = planned[stage];
    const bool is_last = stage + 1 == stages;
    own.first_call = blocks[firsts[stage]];
    own.end_call = is_last ? record.calls.size() : planned[stage + 1].first_call;
    const auto& first = record.calls[own.first_call];
    own.forward = {stage == 0 ? 0 : first.begins_at, is_last ? loss_at : planned[stage + 1].forward.begin};
    const bool goes_on = stage > 0 && first.backward_ends_at >= 0;  // to the stage before
    own.backward = {backward_begin, goes_on ? first.backward_ends_at + 1 : end};
    backward_begin = own.backward.end;
    own.has_parameter = parameters_of(record, own.first_call, own.end_call);
  }
  return planned;
}

}  // namespace lockstep
