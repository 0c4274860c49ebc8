#pragma once

#include <functional>

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

}  // namespace lockstep::apps
