#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

/// An amount of which the ranks along an axis "tensor" have parts.
struct CutAmount {
  double whole = 0;    ///< on each of the ranks
  double cut = 0;      ///< divided among the ranks
  double between = 0;  ///< of tokens between cut layers: divided if the ranks have shards of the sequence

  double on_rank(int64_t ranks, bool has_sequence_shards) const {
    const auto parts = static_cast<double>(ranks);
    return whole + cut / parts + between / (has_sequence_shards ? parts : 1);
  }
  double sum() const { return whole + cut + between; }
};

/// The work of a device for a part of a model, forward or backward.
struct PlannedWork {
  CutAmount flops{};  ///< of matrix products, convolutions and attention, for an example
  CutAmount
      skipped_flops{};      ///< of these, products of causal attention that kernels skip: the mask hides them
  CutAmount bytes{};        ///< that all other operators read and write, for an example
  CutAmount fixed_bytes{};  ///< the same, whatever the examples, such as weights that are cast
  double operators = 0;     ///< how many are called, whatever the examples
};

/// A part of a model that is called once in forward, such as a transformer's block: its parameters, and the
/// memory and time that an example takes. All bytes and operations are those of one example.
struct PlannedPart {
  std::string name;  ///< such as "block"
  /// By which a pipeline is cut into stages of equal cost; 0 in all parts: by the bytes of their parameters.
  double stage_cost = 0;
  CutAmount elements{};        ///< of its parameters
  double expert_elements = 0;  ///< of parameters that the ranks along an axis "expert" share besides
  CutAmount largest_tensor{};  ///< elements of its largest parameter
  CutAmount input{};           ///< bytes that it gets from the part before it
  CutAmount saved{};           ///< bytes that forward keeps for backward, with its input
  CutAmount fixed_saved{};     ///< the same, whatever the examples, such as weights of another dtype
  CutAmount forward_extra{};   ///< most bytes that are there besides `saved` while it goes forward
  CutAmount backward_extra{};  ///< most bytes that are there besides `saved` while it goes backward
  /// Bytes that the first half of backward keeps for the second one besides `saved`, if a schedule splits it:
  /// the gradients of its matrix products.
  CutAmount split_extra{};
  double fixed_extra = 0;  ///< bytes that are there while it runs, whatever the examples
  /// Whether the gradients of its parameters come after that moment, such as those of a head behind a loss.
  bool has_late_gradients = false;
  PlannedWork forward{}, backward{};
  bool is_recomputed = false;  ///< if a layout computes again
  double summed_forward = 0;   ///< bytes that ranks along an axis "tensor" sum up in forward
  double summed_backward = 0;  ///< and in backward
  double sums = 1;             ///< one after the other, in each direction that has any
  /// Vectors, such as gradients of a norm, that ranks with shards of the sequence sum up in backward besides,
  /// one by one, and the elements of one.
  double vector_sums = 0;
  double vector_elements = 0;
  double keys_and_values = 0;  ///< bytes that ranks along an axis "context" pass on to each other
  double routed = 0;           ///< bytes of tokens on their way to their experts
};

/// A table of embeddings, of whose rows an example looks up few. Its gradients are those rows.
struct PlannedTable {
  double rows = 0;
  double columns = 0;
  double lookups = 0;  ///< of an example

  double elements() const { return rows * columns; }
  /// Returns the different rows among those of so many examples, if all rows are as likely: the most that
  /// there can be on average.
  double distinct_rows(double examples) const;
};

/// A model as its parts, from which plans of any layout are arithmetic: planned_model() makes one of a
/// recorded step.
struct PlannedModel {
  std::vector<PlannedPart> kinds;  ///< parts that differ
  std::vector<size_t> parts{};     ///< the kind of each part, in the order of forward
  double input_bytes = 0;          ///< of an example
  /// Elements of the first part that the last one uses, too, such as a table of embeddings. A rank with both
  /// has them once.
  CutAmount shared_elements{};
  /// Sizes that the ranks along an axis "tensor" must divide. Empty: no such axis.
  std::vector<int64_t> cut_sizes{};
  int64_t sequence_length = 0;  ///< tokens of an example; 0: no axis "context"
  int64_t experts = 0;          ///< of each layer; 0: no axis "expert"
  /// Besides the parts, which then compute from their rows. Replicas have whole tables, or parameter servers
  /// have rows of them (PlannedLayout::servers).
  std::vector<PlannedTable> tables{};

  const PlannedPart& part(size_t number) const { return kinds[parts[number]]; }
  /// Returns the elements of all parameters; shared ones count once.
  double elements() const;
};

/// How a model is trained, in any layout.
struct PlannedTraining {
  int64_t global_batch = 1;      ///< examples of a step
  int64_t parameter_bytes = 4;   ///< of an element of a parameter, and of its gradient
  int64_t optimizer_states = 2;  ///< that the optimizer keeps for each element, of parameter_bytes each
  int64_t first_bucket_bytes = int64_t{1} << 20;  ///< gradients that are summed at once, see BucketOptions
  int64_t bucket_bytes = int64_t{25} << 20;
};

}  // namespace lockstep
