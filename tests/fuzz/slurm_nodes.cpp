#include "lockstep/runtime/cluster/internal/slurm_nodes.h"

#include "lockstep/runtime/base/errors.h"
#include "lockstep/tests/fuzz/fuzz.h"

namespace lockstep::fuzz {

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto text = text_of(data, size);
  const ConfigurationValue value{.source = "fuzz", .name = "the list"};
  const auto nodes =
      accepted<InvalidArgument>([&] { return expand_slurm_nodes(text, value); }, expect_plain_line);
  if (nodes) {
    expect(!nodes->empty() && nodes->size() <= kMaxSlurmNodes, "as many nodes as are allowed");
    std::string joined;
    for (const auto& node : *nodes) {
      expect(!node.empty() && node.size() <= 253, "names as long as hosts have");
      joined += (joined.empty() ? "" : ",") + node;
    }
    expect(expand_slurm_nodes(joined, value) == *nodes, "the same nodes out of their plain list");
  }
  const auto counts =
      accepted<InvalidArgument>([&] { return expand_slurm_counts(text, value); }, expect_plain_line);
  if (counts) {
    expect(!counts->empty() && counts->size() <= kMaxSlurmNodes, "as many counts as nodes are allowed");
    std::string joined;
    for (const int count : *counts) {
      expect(count >= 1, "counts of one or more");
      joined += (joined.empty() ? "" : ",") + std::to_string(count);
    }
    expect(expand_slurm_counts(joined, value) == *counts, "the same counts out of their plain list");
  }
  return 0;
}

}  // namespace lockstep::fuzz
