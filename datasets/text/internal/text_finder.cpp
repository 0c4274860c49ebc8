#include "lockstep/datasets/text/internal/text_finder.h"

#include <algorithm>
#include <deque>
#include <numeric>

namespace lockstep {

TextFinder::TextFinder(const std::vector<std::string>& texts) {
  std::vector<size_t> order(texts.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return texts[a] < texts[b]; });

  // Each node holds the texts of a range of `order`, which agree in their first `depth` bytes.
  struct Open {
    size_t node, begin, end, depth;
  };
  nodes_.emplace_back();
  std::deque<Open> open = {{.node = 0, .begin = 0, .end = order.size(), .depth = 0}};
  for (; !open.empty(); open.pop_front()) {
    const auto [node, first, end, depth] = open.front();
    size_t begin = first;
    while (begin < end && texts[order[begin]].size() == depth) {
      if (depth > 0 && nodes_[node].which == kNone) nodes_[node].which = order[begin];
      ++begin;
    }
    nodes_[node].first_edge = edges_.size();
    while (begin < end) {
      const char byte = texts[order[begin]][depth];
      size_t next = begin;
      while (next < end && texts[order[next]][depth] == byte) ++next;
      edges_.push_back({.byte = byte, .node = nodes_.size()});
      open.push_back({.node = nodes_.size(), .begin = begin, .end = next, .depth = depth + 1});
      nodes_.emplace_back();
      ++nodes_[node].num_edges;
      if (depth == 0) begins_[static_cast<uint8_t>(byte)] = true;
      begin = next;
    }
  }
}

std::optional<TextFinder::Match> TextFinder::find(std::string_view text, size_t from) const {
  if (edges_.empty()) return std::nullopt;
  for (size_t begin = from; begin < text.size(); ++begin) {
    if (!begins_[static_cast<uint8_t>(text[begin])]) continue;
    if (const auto match = match_at(text, begin)) return match;
  }
  return std::nullopt;
}

std::optional<TextFinder::Match> TextFinder::match_at(std::string_view text, size_t begin) const {
  std::optional<Match> longest;
  size_t node = 0;
  for (size_t at = begin; at < text.size(); ++at) {
    const Edge* const edges = edges_.data() + nodes_[node].first_edge;
    const Edge* const end = edges + nodes_[node].num_edges;
    const Edge* const edge =
        std::find_if(edges, end, [&](const Edge& each) { return each.byte == text[at]; });
    if (edge == end) break;
    node = edge->node;
    if (nodes_[node].which != kNone)
      longest = Match{.begin = begin, .end = at + 1, .which = nodes_[node].which};
  }
  return longest;
}

}  // namespace lockstep
