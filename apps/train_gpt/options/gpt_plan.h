#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/apps/train_gpt/options/gpt_train_options.h"
#include "lockstep/models/gpt/gpt_options.h"

namespace lockstep::apps {

/// The model that the options begin with, before single sizes are changed.
struct BaseModel {
  GptOptions options;
  std::string name;  ///< for messages: small, gpt2 or a config.json
  /// Whether the sizes are those of given weights or of a published model, and not to be chosen for the data.
  bool is_fixed = false;
  bool is_of_file = false;  ///< weights of Hugging Face's models come with it
};

/// Returns the model of --init-weights if that has a config.json, else that of --model. Throws
/// CheckpointError naming the file if its config.json cannot be used, and UsageError if --model has other
/// sizes.
BaseModel base_model(const GptTrainOptions& options);

/// Returns the path of the config.json that belongs to the weights at `path`; empty if there is none.
std::string configuration_of_weights(const std::string& path);

/// Returns the number of tokens in a sequence. Throws UsageError if the model has fewer positions.
int64_t sequence_length_of(const GptTrainOptions& options, const BaseModel& base);

/// Returns the model to train on tokens below `vocabulary_size`, with the sizes of the flags in place of the
/// base's. Throws UsageError naming the flag if sizes do not fit each other, the weights, or the vocabulary.
GptOptions model_to_train(const GptTrainOptions& options, const BaseModel& base, int64_t vocabulary_size);

/// Values that depend on the model and the number of replicas.
struct GptPlan {
  GptOptions model;
  int64_t sequence_length = 0;
  int64_t global_batch_size = 0;      ///< sequences in a step
  int64_t micro_batches = 1;          ///< pieces of a replica's sequences of a step
  std::vector<double> stage_costs{};  ///< of each of GptImpl::blocks(), to cut it into stages
  int64_t epochs = 0;                 ///< tests; the last epoch may have fewer steps
  int64_t warmup_steps = 0;
  double flops_per_token = 0;  ///< gpt_training_flops()

  int64_t tokens_per_step() const { return global_batch_size * sequence_length; }
};

/// Throws UsageError if --tokens-per-step is no multiple of the sequence length.
GptPlan make_gpt_plan(const GptTrainOptions& options, const GptOptions& model, int64_t sequence_length,
                      int num_replicas);

/// Returns the share of the highest learning rate at step `step`, counted from 0: a linear warm-up, then half
/// a cosine down to the final rate, or no change.
double learning_rate_share(const GptTrainOptions& options, const GptPlan& plan, int64_t step);

/// An epoch that begins.
struct EpochBegin {
  int64_t epoch = 1;       ///< counted from 1
  int64_t steps_done = 0;  ///< in all epochs before it
};

/// Returns the steps of an epoch: those of --test-every, and in the last one all that are left. That may be
/// another number than the others have, also because --steps was raised when the training resumed.
int64_t steps_of_epoch(const GptTrainOptions& options, const GptPlan& plan, const EpochBegin& begin);

}  // namespace lockstep::apps
