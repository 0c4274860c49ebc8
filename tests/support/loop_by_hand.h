#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lockstep/datasets/tensors/tensor_dataset.h"
#include "lockstep/strategies/mirrored/mirrored_strategy.h"
#include "lockstep/tests/support/one_device_equivalence.h"
#include "lockstep/tests/support/text_files.h"
#include "lockstep/training/checkpoints/backup.h"

namespace lockstep {

/// A loop by hand, as in docs/checkpoints.md.
struct LoopByHand {
  LoopByHand(Strategy& made_by, const BackupOptions& options) : strategy(made_by), backup(made_by, options) {
    // Drawn once: in some tests workers are threads of one process, and share its generator.
    static const auto initial = [] {
      torch::manual_seed(17);
      return values_of(TanhNet()->parameters());
    }();
    model.emplace(strategy.scope([](ReplicaContext&) {
      const torch::NoGradGuard no_grad;
      TanhNet net;
      const auto parameters = net->parameters();
      for (size_t i = 0; i < parameters.size(); ++i) parameters[i].copy_(initial[i]);
      return net;
    }));
    optimizer.emplace(strategy.scope(
        [&](ReplicaContext& replica) { return momentum_sgd()((*model)[replica]->parameters()); }));
    backup.state().add_model(*model);
    backup.state().add_optimizer("optimizer", *optimizer);
    restored = backup.restore();
    if (restored) progress = restored->progress;
  }

  /// Trains until `last_step` steps are done; returns the parameters.
  std::vector<torch::Tensor> run_to(int64_t last_step) {
    static const auto data = examples_of_three_classes();
    auto batches = strategy.distribute_dataset(TensorDataset(data.data, data.target),
                                               {.global_batch_size = kBatchSize, .shuffle_seed = 3});
    batches.restore({progress.dataset_epoch, progress.position});
    while (progress.step < last_step) {
      for (const auto& batch : batches) {
        strategy.run(plain_step<TanhNet>, *model, *optimizer, batch);
        ++progress.step;
        progress.dataset_epoch = batches.position().epoch;
        progress.position = batches.position().step;
        backup.step_done(progress);
        if (progress.step == last_step) break;
      }
    }
    return values_of(model->primary()->parameters());
  }

  Strategy& strategy;
  Backup backup;
  TrainingProgress progress;
  std::optional<Backup::Restored> restored;
  std::optional<Mirrored<TanhNet>> model;
  std::optional<Mirrored<OptimizerPointer>> optimizer;
};

/// Options that save a checkpoint after each step.
inline BackupOptions every_step(const std::string& folder, std::vector<std::string>* messages = nullptr) {
  return {.folder = folder,
          .save_every = SaveInterval::steps(1),
          .on_message = [messages](const std::string& line) {
            if (messages != nullptr) messages->push_back(line);
          }};
}

/// Flips a bit in the middle of a file.
inline void damage(const std::string& path) {
  std::string bytes = testing::read_text(path);
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
  testing::write_text(path, bytes);
}

}  // namespace lockstep
