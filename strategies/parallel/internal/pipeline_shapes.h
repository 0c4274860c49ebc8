#pragma once

#include <c10/core/ScalarType.h>
#include <torch/types.h>

#include <compare>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "lockstep/runtime/replicas/replica_collectives.h"

namespace lockstep {

/// The shape of a value that goes from one rank of a pipeline to another, and its order in memory.
class ActivationShape {
 public:
  explicit ActivationShape(const torch::Tensor& value);
  bool operator==(const ActivationShape&) const = default;

  /// Returns the shape as a tensor, which has one size for all of them. Throws InvalidArgument for more
  /// dimensions than fit.
  torch::Tensor header() const;
  static torch::Tensor empty_header();
  static ActivationShape of_header(const torch::Tensor& header);

  /// Returns the values in the order in which they are sent, contiguous.
  torch::Tensor packed(const torch::Tensor& value) const;
  torch::Tensor empty_packed(torch::Device device) const;
  torch::Tensor unpacked(const torch::Tensor& packed) const;

  /// Such as "Float [4, 8]".
  std::string describe() const;

 private:
  ActivationShape() = default;

  std::vector<int64_t> sizes_;
  at::ScalarType dtype_ = torch::kFloat;
  bool is_channels_last_ = false;
};

/// The shapes that a replica's pipelines have agreed on, so that each is sent once.
class PipelineShapes : public EndsWithRun {
 public:
  struct Key {
    const void* pipeline = nullptr;
    int place = 0;                            ///< the stage that receives the values
    bool is_of_blocks = true;                 ///< whether blocks compute them, or other functions
    std::vector<int64_t> input;               ///< sizes of what goes into the first stage
    at::ScalarType dtype = torch::kFloat;     ///< of the same
    at::ScalarType autocast = torch::kFloat;  ///< in which the stages compute
    auto operator<=>(const Key&) const = default;
  };

  /// Returns null if the shape is not known. Valid until abandon_run().
  const ActivationShape* find(const Key& key) const;
  const ActivationShape& add(const Key& key, const ActivationShape& shape);
  /// Throws InvalidArgument if `shape` is not the known one; `value` names the tensor that has it.
  static void check(const ActivationShape& known, const ActivationShape& shape, const std::string& value);

  void end_run() override {}
  /// Some ranks may know more than others.
  void abandon_run() noexcept override { shapes_.clear(); }

 private:
  std::map<Key, ActivationShape> shapes_;
};

}  // namespace lockstep
