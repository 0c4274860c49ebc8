#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <string>

namespace lockstep {

/// Makes gradients smaller before worker processes exchange them, or GPUs over NCCL, which is less exact and
/// saves time on slow links. Sums in memory that replicas share are not compressed. Replicas stay bit-equal,
/// since all of them use the decompressed sum.
///
/// Example:
///
///     struct HalfCompression : GradientCompression {
///       std::string name() const override { return "half"; }
///       at::Tensor compress(const at::Tensor& bucket) override { return bucket.to(at::kHalf); }
///       void decompress(const at::Tensor& sum, at::Tensor& bucket) override { bucket.copy_(sum); }
///     };
///
/// Background threads call it, one call at a time. One optimizer's buckets come in the same order at every
/// step, except that their layout may change during the first steps, so a compression may keep a state for
/// each bucket, such as the error of the last compression. Buckets of several optimizers come in any order.
class GradientCompression {
 public:
  virtual ~GradientCompression() = default;

  /// Returns the name, which must be the same on all workers.
  virtual std::string name() const = 0;
  /// Returns the tensor to send for `bucket`, which is this process's sum: a dense vector of a floating-point
  /// dtype on the CPU. The workers' results are added element by element, so their shape and dtype must be
  /// the same on all workers.
  virtual at::Tensor compress(const at::Tensor& bucket) = 0;
  /// Computes the sum over the workers from `sum`, the sum of their compressed buckets, and writes it to
  /// `bucket`.
  virtual void decompress(const at::Tensor& sum, at::Tensor& bucket) = 0;
  /// Returns the dtype if the compression only rounds to a shorter one, else nothing. NCCL, which has a rank
  /// for each replica, supports only such compressions. It rounds on the device and does not call compress()
  /// or decompress().
  virtual std::optional<at::ScalarType> wire_dtype() const { return std::nullopt; }
};

/// Rounds gradients to a shorter floating-point dtype. Throws InvalidArgument unless it is float16 or
/// bfloat16.
///
/// Example:
///
///     StrategyOptions options;
///     options.communication.gradient_compression = std::make_shared<CastCompression>(at::kBFloat16);
///     MultiWorkerMirroredStrategy strategy(nullptr, {}, options);
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

/// Makes a compression by name: none (null), float16 or bfloat16. Throws InvalidArgument listing these names.
std::shared_ptr<GradientCompression> make_gradient_compression(const std::string& name);

}  // namespace lockstep
