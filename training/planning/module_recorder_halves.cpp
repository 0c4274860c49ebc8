// Records the halves of each call's backward.
#include <c10/core/ScalarType.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/training/planning/internal/call_halves.h"
#include "lockstep/training/planning/internal/step_of_logs.h"
#include "lockstep/training/planning/module_recorder.h"

namespace lockstep {

/// The calls of a pass whose backward runs in halves.
struct ModuleRecorder::HalvesLog {
  const torch::nn::Module& model;
  std::vector<CallHalves> calls{};
  bool is_in_call = false;
};

torch::Tensor ModuleRecorder::call_in_halves(const std::string& name, const Function& function,
                                             const torch::Tensor& x) {
  HalvesLog& log = *halves_;
  if (log.is_in_call) return function(x);
  std::vector<torch::Tensor> parameters;
  for (const auto& item : log.model.named_parameters()) {
    if (item.key().starts_with(name + ".")) parameters.push_back(item.value());
  }
  log.is_in_call = true;
  // Gradients do not go from the first block to the batch.
  const bool has_input = !log.calls.empty() && x.is_floating_point();
  auto result = run_halves(function, x, has_input, parameters, ranks_, log.calls.emplace_back());
  log.is_in_call = false;
  return result;
}

void ModuleRecorder::record_halves(RecordedStep& record, const torch::nn::Module& model,
                                   const std::vector<Batch>& batches,
                                   const std::function<torch::Tensor(const Batch& batch)>& loss_of) {
  struct Recording {
    Recording(HalvesLog*& place, HalvesLog* log) : place(place) { place = log; }
    ~Recording() { place = nullptr; }
    HalvesLog*& place;
  };
  std::vector<std::vector<CallHalves>> passes;
  for (const auto& batch : batches) {
    HalvesLog log{.model = model};
    const Recording recording(halves_, &log);
    loss_of(batch);
    passes.push_back(std::move(log.calls));
  }
  const BatchLine line(options_.fewer_examples, options_.more_examples);
  const auto& fewer = passes.front();
  const auto& more = passes.back();
  for (size_t i = 0; i < std::min(record.calls.size(), more.size()); ++i) {
    if (!more[i].are_apart) continue;
    record.calls[i].halves = {
        .are_apart = true,
        .needs_input = more[i].needs_input,
        .saved = line.through(fewer[i].saved, more[i].saved),
        .gradients = line.through(fewer[i].gradients, more[i].gradients),
        .keeps_output_gradient = more[i].keeps_output_gradient,
        .most_in_first = line.through(fewer[i].most_in_first, more[i].most_in_first),
        .most_in_second = line.through(fewer[i].most_in_second, more[i].most_in_second)};
  }
}

}  // namespace lockstep
