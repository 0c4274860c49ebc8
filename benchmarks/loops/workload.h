#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::benchmarks {

enum class BenchmarkModel {
  kMobileNetV2,  ///< with 10 classes, on random images
  kGpt,          ///< heads of width 64 over 256 tokens, on random sequences
};

inline constexpr int64_t kNumClasses = 10;
inline constexpr int64_t kVocabularySize = 256;
inline constexpr int64_t kHeadWidth = 64;

/// The work of one training step: the model, random data, and AdamW.
struct Workload {
  BenchmarkModel model = BenchmarkModel::kMobileNetV2;
  int64_t image_size = 64;
  int64_t sequence_length = 256;
  int64_t num_layers = 6;  ///< of the GPT
  int64_t width = 384;     ///< of the GPT's layers, a multiple of kHeadWidth
  int64_t global_batch_size = 64;
  /// Average pooling, dense 512, dense 10 after the convolutions, instead of one dense layer.
  bool dense_head = false;
  /// GPUs such as gpu:0: one that all replicas share, or several with a replica on each. Empty: logical CPUs.
  std::vector<std::string> gpus;
  /// Forward and loss in bfloat16 by autocast, instead of float32.
  bool bfloat16 = false;
  /// Lockstep's steps on a GPU are captured as CUDA graphs; its peers' are not.
  bool cuda_graph = false;
  /// The GPT computes each block again in backward.
  bool recompute = false;
  /// Of a GPT whose layers are stages of a pipeline: parts of a replica's batch, and the order in which the
  /// ranks compute them (see make_pipeline_schedule()).
  int micro_batches = 4;
  std::string schedule = "1f1b";
  /// A class folder or zip of images to train on, instead of one random batch over and over.
  std::string images;

  /// Returns the GPUs as --gpus takes them, such as gpu:0,gpu:1.
  std::string gpu_list() const;
  /// Returns the model as --model takes it.
  const char* model_name() const;
  /// Returns the decoupled weight decay that its users train with. 0 makes AdamW the same as Adam.
  double weight_decay() const { return model == BenchmarkModel::kGpt ? 0.01 : 0; }
};

}  // namespace lockstep::benchmarks
