#pragma once

#include <torch/data/example.h>
#include <torch/data/transforms/stack.h>
#include <torch/types.h>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/devices/pinned_memory.h"

namespace lockstep {

/// Data and target of one example, or of a batch of examples along axis 0.
using Example = torch::data::Example<>;

/// Tells a distributed dataset how to handle a type of batch. Specialize it for your own types, unless they
/// are a BatchClass:
/// - size(batch): Returns the number of examples.
/// - none_of(batch): Returns a batch of 0 examples with the same types and otherwise the same shapes.
/// - slice(batch, begin, end): Returns the examples [begin, end), 0 or more. Optional: without it,
///   distribute_dataset() does not cut streams of such batches.
/// - to(batch, device): Returns the batch on a device, copied without blocking if possible.
/// - for_each_tensor(batch, visit): Calls `visit(tensor)` with a reference to every tensor, so that `visit`
///   can replace the tensors of a batch that is not constant. Optional: without it, a CudaGraph does not
///   accept such batches, and batches for GPUs are made on the current stream of the thread that makes them,
///   not on a separate stream while the replicas compute.
/// - cat(batches): Returns the examples of a std::vector of one batch or more, one batch after another.
///   Optional, like the next: without them, distribute_dataset() does not shuffle streams of such batches.
/// - select(batch, indices): Returns the examples at the indices, an int64 tensor [n], in their order.
template <typename Batch>
struct BatchTraits;

/// Whether the batch's traits have for_each_tensor().
template <typename Batch>
concept HasTensors = requires(const Batch& constant, Batch& batch, void (*look)(const torch::Tensor&),
                              void (*exchange)(torch::Tensor&)) {
  BatchTraits<Batch>::for_each_tensor(constant, look);
  BatchTraits<Batch>::for_each_tensor(batch, exchange);
};

/// Whether the batch's traits have cat() and select().
template <typename Batch>
concept Selectable = requires(const Batch& batch, const std::vector<Batch>& batches,
                              const torch::Tensor& indices) {
  { BatchTraits<Batch>::cat(batches) } -> std::convertible_to<Batch>;
  { BatchTraits<Batch>::select(batch, indices) } -> std::convertible_to<Batch>;
};

namespace detail {

/// Returns `part(batch)` of each batch.
template <typename Batch, typename Part>
auto parts_of(const std::vector<Batch>& batches, const Part& part) {
  std::vector<std::remove_cvref_t<decltype(part(batches.front()))>> parts;
  parts.reserve(batches.size());
  for (const auto& batch : batches) parts.push_back(part(batch));
  return parts;
}

/// A tensor without dimensions was given as a batch. The caller adds where the batch came from.
class NotABatch : public InvalidArgument {
 public:
  using InvalidArgument::InvalidArgument;
};

/// Throws NotABatch for a tensor without dimensions.
void check_is_batch(const torch::Tensor& tensor);

/// Returns `make()`. Puts `place()` in front of the message of NotABatch.
template <typename Make, typename Place>
decltype(auto) with_place_of_batch(const Make& make, const Place& place) {
  try {
    return make();
  } catch (const NotABatch& error) {
    throw InvalidArgument(place() + ": " + error.what());
  }
}

}  // namespace detail

/// An undefined tensor, such as the target of examples without targets, stays undefined.
template <>
struct BatchTraits<torch::Tensor> {
  static int64_t size(const torch::Tensor& batch) {
    detail::check_is_batch(batch);
    return batch.size(0);
  }
  static torch::Tensor none_of(const torch::Tensor& batch) {
    if (!batch.defined()) return batch;
    detail::check_is_batch(batch);
    return batch.narrow(0, 0, 0);
  }
  static torch::Tensor slice(const torch::Tensor& batch, int64_t begin, int64_t end) {
    if (!batch.defined()) return batch;
    detail::check_is_batch(batch);
    // A separate version counter: if a replica changes its slice in place, autograd must not take that for a
    // change of the other replicas' slices.
    return batch.narrow(0, begin, end - begin).variable_data();
  }
  static torch::Tensor cat(const std::vector<torch::Tensor>& batches) {
    return batches.front().defined() ? torch::cat(batches) : batches.front();
  }
  static torch::Tensor select(const torch::Tensor& batch, const torch::Tensor& indices) {
    return batch.defined() ? batch.index_select(0, indices.to(batch.device())) : batch;
  }
  static torch::Tensor to(const torch::Tensor& batch, torch::Device device) {
    return batch.defined() ? pinned_for(batch, device).to(device, /*non_blocking=*/true) : batch;
  }
  template <typename Visit>
  static void for_each_tensor(auto& batch, const Visit& visit) {
    visit(batch);
  }
};

template <typename Data, typename Target>
struct BatchTraits<torch::data::Example<Data, Target>> {
  using Batch = torch::data::Example<Data, Target>;
  static int64_t size(const Batch& batch) { return BatchTraits<Data>::size(batch.data); }
  static Batch none_of(const Batch& batch) {
    return {BatchTraits<Data>::none_of(batch.data), BatchTraits<Target>::none_of(batch.target)};
  }
  static Batch slice(const Batch& batch, int64_t begin, int64_t end) {
    return {BatchTraits<Data>::slice(batch.data, begin, end),
            BatchTraits<Target>::slice(batch.target, begin, end)};
  }
  static Batch cat(const std::vector<Batch>& batches) requires(Selectable<Data>&& Selectable<Target>) {
    return {
        BatchTraits<Data>::cat(detail::parts_of(batches, [](const Batch& batch) { return batch.data; })),
        BatchTraits<Target>::cat(detail::parts_of(batches, [](const Batch& batch) { return batch.target; }))};
  }
  static Batch select(const Batch& batch,
                      const torch::Tensor& indices) requires(Selectable<Data>&& Selectable<Target>) {
    return {BatchTraits<Data>::select(batch.data, indices),
            BatchTraits<Target>::select(batch.target, indices)};
  }
  static Batch to(const Batch& batch, torch::Device device) {
    return {BatchTraits<Data>::to(batch.data, device), BatchTraits<Target>::to(batch.target, device)};
  }
  template <typename Visit>
  requires(HasTensors<Data>&& HasTensors<Target>)  //
      static void for_each_tensor(auto& batch, const Visit& visit) {
    BatchTraits<Data>::for_each_tensor(batch.data, visit);
    BatchTraits<Target>::for_each_tensor(batch.target, visit);
  }
};

template <typename Data>
struct BatchTraits<torch::data::Example<Data, torch::data::example::NoTarget>> {
  using Batch = torch::data::Example<Data, torch::data::example::NoTarget>;
  static int64_t size(const Batch& batch) { return BatchTraits<Data>::size(batch.data); }
  static Batch none_of(const Batch& batch) { return {BatchTraits<Data>::none_of(batch.data)}; }
  static Batch slice(const Batch& batch, int64_t begin, int64_t end) {
    return {BatchTraits<Data>::slice(batch.data, begin, end)};
  }
  static Batch cat(const std::vector<Batch>& batches) requires Selectable<Data> {
    return {BatchTraits<Data>::cat(detail::parts_of(batches, [](const Batch& batch) { return batch.data; }))};
  }
  static Batch select(const Batch& batch, const torch::Tensor& indices) requires Selectable<Data> {
    return {BatchTraits<Data>::select(batch.data, indices)};
  }
  static Batch to(const Batch& batch, torch::Device device) {
    return {BatchTraits<Data>::to(batch.data, device)};
  }
  template <typename Visit>
  requires HasTensors<Data>
  static void for_each_tensor(auto& batch, const Visit& visit) {
    BatchTraits<Data>::for_each_tensor(batch.data, visit);
  }
};

/// Several values that are batched together, each along axis 0.
template <typename First, typename... Rest>
struct BatchTraits<std::tuple<First, Rest...>> {
  using Batch = std::tuple<First, Rest...>;
  static int64_t size(const Batch& batch) { return BatchTraits<First>::size(std::get<0>(batch)); }
  static Batch none_of(const Batch& batch) {
    return std::apply(
        [](const auto&... part) {
          return Batch(BatchTraits<std::remove_cvref_t<decltype(part)>>::none_of(part)...);
        },
        batch);
  }
  static Batch slice(const Batch& batch, int64_t begin, int64_t end) {
    return std::apply(
        [&](const auto&... part) {
          return Batch(BatchTraits<std::remove_cvref_t<decltype(part)>>::slice(part, begin, end)...);
        },
        batch);
  }
  static Batch cat(const std::vector<Batch>& batches)  //
      requires(Selectable<First> && (Selectable<Rest> && ...)) {
    return cat_parts(batches, std::index_sequence_for<First, Rest...>());
  }
  static Batch select(const Batch& batch, const torch::Tensor& indices)  //
      requires(Selectable<First> && (Selectable<Rest> && ...)) {
    return std::apply(
        [&](const auto&... part) {
          return Batch(BatchTraits<std::remove_cvref_t<decltype(part)>>::select(part, indices)...);
        },
        batch);
  }
  static Batch to(const Batch& batch, torch::Device device) {
    return std::apply(
        [&](const auto&... part) {
          return Batch(BatchTraits<std::remove_cvref_t<decltype(part)>>::to(part, device)...);
        },
        batch);
  }
  template <typename Visit>
  requires(HasTensors<First> && (HasTensors<Rest> && ...))  //
      static void for_each_tensor(auto& batch, const Visit& visit) {
    std::apply(
        [&](auto&... part) {
          (BatchTraits<std::remove_cvref_t<decltype(part)>>::for_each_tensor(part, visit), ...);
        },
        batch);
  }

 private:
  template <size_t... i>
  static Batch cat_parts(const std::vector<Batch>& batches, std::index_sequence<i...>) {
    return Batch(BatchTraits<std::tuple_element_t<i, Batch>>::cat(
        detail::parts_of(batches, [](const Batch& batch) { return std::get<i>(batch); }))...);
  }
};

template <typename Part>
struct BatchTraits<std::vector<Part>> {
  using Batch = std::vector<Part>;
  static int64_t size(const Batch& batch) {
    return batch.empty() ? 0 : BatchTraits<Part>::size(batch.front());
  }
  static Batch none_of(const Batch& batch) {
    Batch result;
    for (const auto& part : batch) result.push_back(BatchTraits<Part>::none_of(part));
    return result;
  }
  static Batch slice(const Batch& batch, int64_t begin, int64_t end) {
    Batch result;
    for (const auto& part : batch) result.push_back(BatchTraits<Part>::slice(part, begin, end));
    return result;
  }
  static Batch cat(const std::vector<Batch>& batches) requires Selectable<Part> {
    Batch result;
    for (size_t i = 0; i < batches.front().size(); ++i)
      result.push_back(
          BatchTraits<Part>::cat(detail::parts_of(batches, [i](const Batch& batch) { return batch.at(i); })));
    return result;
  }
  static Batch select(const Batch& batch, const torch::Tensor& indices) requires Selectable<Part> {
    Batch result;
    for (const auto& part : batch) result.push_back(BatchTraits<Part>::select(part, indices));
    return result;
  }
  static Batch to(const Batch& batch, torch::Device device) {
    Batch result;
    for (const auto& part : batch) result.push_back(BatchTraits<Part>::to(part, device));
    return result;
  }
  template <typename Visit>
  requires HasTensors<Part>
  static void for_each_tensor(auto& batch, const Visit& visit) {
    for (auto& part : batch) BatchTraits<Part>::for_each_tensor(part, visit);
  }
};

/// A type of batch that has size(), slice(begin, end) and for_each_tensor(visit) as members, and may have
/// select(indices) and a static cat(batches), all as in BatchTraits. Its tensors must be all that depends on
/// the device.
///
/// Example:
///
///     struct Numbers {
///       torch::Tensor values;
///       int64_t size() const { return values.size(0); }
///       Numbers slice(int64_t begin, int64_t end) const { return {values.slice(0, begin, end)}; }
///       void for_each_tensor(const auto& visit) { visit(values); }
///       void for_each_tensor(const auto& visit) const { visit(values); }
///     };
template <typename Batch>
concept BatchClass = std::is_class_v<Batch> &&
    requires(const Batch& constant, Batch& batch, int64_t place, void (*look)(const torch::Tensor&),
             void (*exchange)(torch::Tensor&)) {
  { constant.size() } -> std::convertible_to<int64_t>;
  { constant.slice(place, place) } -> std::convertible_to<Batch>;
  constant.for_each_tensor(look);
  batch.for_each_tensor(exchange);
};

template <BatchClass Batch>
struct BatchTraits<Batch> {
  static int64_t size(const Batch& batch) { return batch.size(); }
  static Batch none_of(const Batch& batch) { return batch.slice(0, 0); }
  static Batch slice(const Batch& batch, int64_t begin, int64_t end) { return batch.slice(begin, end); }
  static Batch cat(const std::vector<Batch>& batches) requires requires { Batch::cat(batches); }
  { return Batch::cat(batches); }
  static Batch select(const Batch& batch, const torch::Tensor& indices) requires requires {
    batch.select(indices);
  }
  { return batch.select(indices); }
  static Batch to(const Batch& batch, torch::Device device) {
    Batch moved = batch;
    moved.for_each_tensor(
        [&](torch::Tensor& tensor) { tensor = BatchTraits<torch::Tensor>::to(tensor, device); });
    return moved;
  }
  template <typename Visit>
  static void for_each_tensor(auto& batch, const Visit& visit) {
    batch.for_each_tensor(visit);
  }
};

/// Stacks single examples, as LibTorch's datasets return them, into a batch. Batches that are collated
/// already are returned unchanged.
template <typename Batch>
Batch collate(Batch batch) {
  return batch;
}
template <typename Data, typename Target>
torch::data::Example<Data, Target> collate(std::vector<torch::data::Example<Data, Target>> examples) {
  return torch::data::transforms::Stack<torch::data::Example<Data, Target>>().apply_batch(
      std::move(examples));
}

/// A type with `size()` and `get_batch(indices)`, such as LibTorch's datasets, mapped or not.
template <typename D>
concept IndexedDataset = requires(D& dataset, c10::ArrayRef<size_t> indices) {
  { dataset.size() } -> std::convertible_to<std::optional<size_t>>;
  collate(dataset.get_batch(indices));
};

template <IndexedDataset D>
using BatchOf = decltype(collate(std::declval<D&>().get_batch(std::declval<c10::ArrayRef<size_t>>())));

}  // namespace lockstep
