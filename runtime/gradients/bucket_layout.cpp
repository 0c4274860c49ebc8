#include "lockstep/runtime/gradients/bucket_layout.h"

#include <algorithm>
#include <map>

namespace lockstep {

std::vector<std::vector<size_t>> assign_buckets(const std::vector<BucketItem>& items,
                                                const std::vector<size_t>& order,
                                                const BucketOptions& options) {
  struct Open {
    std::vector<size_t> members;
    int64_t bytes = 0;
    bool first = true;
    size_t filled_at = 0;  // position in `order` of its last member
  };
  const auto [first_bucket_bytes, bucket_bytes] = options.or_else(kDefaultBuckets);
  std::map<std::string, Open> open;
  std::vector<Open> closed;
  for (size_t position = 0; position < order.size(); ++position) {
    const BucketItem& item = items[order[position]];
    Open& bucket = open[item.key];
    bucket.members.push_back(order[position]);
    bucket.bytes += item.bytes;
    bucket.filled_at = position;
    if (bucket.bytes >= (bucket.first ? first_bucket_bytes : bucket_bytes)) {
      closed.push_back(bucket);
      bucket = Open{.first = false};
    }
  }
  for (auto& [key, bucket] : open) {
    if (!bucket.members.empty()) closed.push_back(bucket);
  }
  std::sort(closed.begin(), closed.end(),
            [](const Open& a, const Open& b) { return a.filled_at < b.filled_at; });
  std::vector<std::vector<size_t>> buckets;
  buckets.reserve(closed.size());
  for (auto& bucket : closed) buckets.push_back(std::move(bucket.members));
  return buckets;
}

}  // namespace lockstep
