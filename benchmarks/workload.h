#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::benchmarks {

/// The work of one training step: MobileNetV2 with 10 classes, random images, Adam.
struct Workload {
  int64_t image_size = 64;
  int64_t global_batch_size = 64;
  /// Average pooling, dense 512, dense 10 after the convolutions, instead of one dense layer.
  bool dense_head = false;
  /// GPUs such as gpu:0: one that all replicas share, or several with a replica on each. Empty: logical CPUs.
  std::vector<std::string> gpus;
  /// Forward and loss in bfloat16 by autocast, instead of float32.
  bool bfloat16 = false;
  /// Lockstep's steps on a GPU are captured as CUDA graphs; its peers' are not.
  bool cuda_graph = false;
  /// A class folder or zip of images to train on, instead of one random batch over and over.
  std::string images;

  /// Returns the GPUs as --gpus takes them, such as gpu:0,gpu:1.
  std::string gpu_list() const;
};

}  // namespace lockstep::benchmarks
