#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <string>

namespace lockstep {

/// How gradients are made smaller for the way between worker processes, which costs exactness and saves time
/// on slow links. Within a process they are summed as they are. Replicas stay bit-equal: all of them take
/// what comes back.
///
/// One call at a time, from background threads. The buckets of one optimizer come in the same order at every
/// step, but for a new layout in the first ones, so that a hook may keep a state for each, such as the error
/// of the last compression; those of several optimizers come in any order.
class GradientCompression {
 public:
  virtual ~GradientCompression() = default;

  /// Must be the same on all workers.
  virtual std::string name() const = 0;
  /// What travels for `bucket`, this process's sum as a dense vector of a floating-point dtype on the CPU.
  /// Workers' results are added up, element by element: they have the same shape and dtype everywhere.
  virtual at::Tensor compress(const at::Tensor& bucket) = 0;
  /// Writes the sum over the workers, out of the sum of what they sent, into `bucket`.
  virtual void decompress(const at::Tensor& sum, at::Tensor& bucket) = 0;
  /// For one that does no more than to round to a shorter dtype: that dtype. Such can be used by NCCL, too,
  /// which has a rank for each replica and rounds on its device, without calls of the two above.
  virtual std::optional<at::ScalarType> wire_dtype() const { return std::nullopt; }
};

/// Rounds to a shorter floating-point dtype, such as at::kBFloat16. Throws InvalidArgument for another one
/// than float16 and bfloat16.
class CastCompression : public GradientCompression {
 public:
  explicit CastCompression(at::ScalarType dtype);
  std::string name() const override;
  at::Tensor compress(const at::Tensor& bucket) override;
  void decompress(const at::Tensor& sum, at::Tensor& bucket) override;
  std::optional<at::ScalarType> wire_dtype() const override { return dtype_; }

 private:
  const at::ScalarType dtype_;
};

/// By name: none (null), float16 or bfloat16. Throws InvalidArgument listing them.
std::shared_ptr<GradientCompression> make_gradient_compression(const std::string& name);

}  // namespace lockstep
