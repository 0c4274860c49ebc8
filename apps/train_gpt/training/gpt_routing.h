#pragma once

#include <functional>
#include <string>

#include "lockstep/models/gpt/gpt.h"
#include "lockstep/runtime/replicas/mirrored.h"
#include "lockstep/training/reporting/records/run_record.h"
#include "lockstep/training/trainer/callback.h"

namespace lockstep::apps {

/// Adds what the routers of a model with experts did in each epoch's steps to its logs: largest_expert_load,
/// the largest load of an expert as a multiple of an even share, averaged over the layers, and
/// dropped_tokens, the share of the tokens' choices that experts had no room for. Must come before callbacks
/// that read the logs. A collective of all replicas.
class GptRouting : public Callback {
 public:
  /// `receive` gets the loads of all experts of each epoch, on all workers.
  using Receiver = std::function<void(ExpertLoad)>;

  GptRouting(Mirrored<Gpt>& model, Receiver receive) : model_(model), receive_(std::move(receive)) {}
  void on_epoch_begin(FitState& state) override;
  void on_epoch_end(FitState& state) override;

 private:
  Mirrored<Gpt>& model_;
  Receiver receive_;
};

/// Returns the name of the first router in this process whose numbers were NaN or infinite since the current
/// epoch began, such as `blocks.3.experts`; empty if there was none.
std::string first_not_finite_router(const Mirrored<Gpt>& model);

}  // namespace lockstep::apps
