#include "lockstep/runtime/collectives/mesh.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/base/internal/text_excerpt.h"

namespace lockstep {
namespace {

constexpr size_t kMostSuggestions = 3;

bool is_axis_name(std::string_view name) {
  const auto is_lower = [](char c) { return c >= 'a' && c <= 'z'; };
  if (name.empty() || !is_lower(name.front())) return false;
  return std::all_of(name.begin(), name.end(),
                     [&](char c) { return is_lower(c) || (c >= '0' && c <= '9') || c == '_'; });
}

void check_axes(const std::vector<MeshAxis>& axes) {
  if (axes.size() > Mesh::kMostAxes) {
    throw InvalidArgument("[mesh] expected at most " + std::to_string(Mesh::kMostAxes) + " axes, but got " +
                          std::to_string(axes.size()));
  }
  int64_t num_replicas = 1;
  for (size_t i = 0; i < axes.size(); ++i) {
    const auto& [name, size, role] = axes[i];
    if (!is_axis_name(name)) {
      throw InvalidArgument(
          "[mesh] expected the name of an axis, such as data or shard, in lower-case letters, digits and "
          "underscores, but got " +
          quoted_excerpt(name));
    }
    for (size_t other = 0; other < i; ++other) {
      if (axes[other].name == name)
        throw InvalidArgument("[mesh] expected each axis once, but got two called " + name);
    }
    if (size < 1) {
      throw InvalidArgument("[mesh] expected the axis " + name + " to have 1 or more replicas, but got " +
                            std::to_string(size));
    }
    num_replicas *= size;
    if (num_replicas > Mesh::kMostReplicas) {
      throw InvalidArgument("[mesh] expected at most " + std::to_string(Mesh::kMostReplicas) +
                            " replicas, but got more");
    }
  }
}

/// Finds the sizes of `num_axes` axes that multiply to `product`.
class Factorizations {
 public:
  Factorizations(int product, size_t num_axes) : num_axes_(num_axes) {
    for (int divisor = 1; divisor <= product; ++divisor) {
      if (product % divisor == 0) divisors_.push_back(divisor);
    }
    append(product);
  }

  std::vector<std::vector<int>> found;

 private:
  static constexpr size_t kMost = 4096;

  /// Appends those that begin with `sizes_`.
  void append(int rest) {
    if (sizes_.size() + 1 == num_axes_) {
      found.push_back(sizes_);
      found.back().push_back(rest);
      return;
    }
    for (const int size : divisors_) {
      if (rest % size != 0 || found.size() == kMost) continue;
      sizes_.push_back(size);
      append(rest / size);
      sizes_.pop_back();
    }
  }

  const size_t num_axes_;
  std::vector<int> divisors_;
  std::vector<int> sizes_;
};

/// Returns how far sizes are from the axes' own, as the factor by which all together differ.
double distance(const std::vector<MeshAxis>& axes, const std::vector<int>& sizes) {
  double sum = 0;
  for (size_t i = 0; i < axes.size(); ++i) sum += std::abs(std::log(double(sizes[i]) / axes[i].size));
  return sum;
}

/// Returns the meshes of `num_replicas` with these axes that are closest to the sizes asked for.
std::string suggestions(const std::vector<MeshAxis>& axes, int num_replicas) {
  auto found = Factorizations(num_replicas, axes.size()).found;
  std::stable_sort(found.begin(), found.end(),
                   [&](const auto& a, const auto& b) { return distance(axes, a) < distance(axes, b); });
  found.resize(std::min(found.size(), kMostSuggestions));
  std::string text;
  for (const auto& suggested : found) {
    auto named = axes;
    for (size_t i = 0; i < named.size(); ++i) named[i].size = suggested[i];
    text += (text.empty() ? "" : " or ") + Mesh(std::move(named)).str();
  }
  return text;
}

constexpr std::array kRoles{std::pair<AxisRole, std::string_view>{AxisRole::kData, "data"},
                            std::pair<AxisRole, std::string_view>{AxisRole::kModel, "model"},
                            std::pair<AxisRole, std::string_view>{AxisRole::kContext, "context"}};

std::string_view name_of(AxisRole role) {
  for (const auto& [known, name] : kRoles) {
    if (known == role) return name;
  }
  return {};
}

/// Returns the role in text such as ":model", none if it is no role's.
std::optional<AxisRole> role_in(std::string_view text) {
  for (const auto& [role, name] : kRoles) {
    if (!text.empty() && text.front() == ':' && text.substr(1) == name) return role;
  }
  return std::nullopt;
}

}  // namespace

AxisRole usual_role(const std::string& axis) {
  if (axis == "context") return AxisRole::kContext;
  return axis == "tensor" || axis == "pipeline" ? AxisRole::kModel : AxisRole::kData;
}

Mesh::Mesh(std::vector<MeshAxis> axes) : axes_(std::move(axes)) {
  check_axes(axes_);
}

int Mesh::size() const {
  return axes_.empty() ? 1 : stride_of(0) * axes_.front().size;
}

int Mesh::num_replicas() const {
  int number = 1;
  for (const auto& axis : axes_) number *= axis.role == AxisRole::kData ? axis.size : 1;
  return number;
}

int Mesh::replica_of(int rank) const {
  const auto own = coordinates(rank);
  int replica = 0;
  for (size_t i = 0; i < axes_.size(); ++i) {
    if (axes_[i].role == AxisRole::kData) replica = replica * axes_[i].size + own[i];
  }
  return replica;
}

bool Mesh::is_first_of_replica(int rank) const {
  const auto own = coordinates(rank);
  for (size_t i = 0; i < axes_.size(); ++i) {
    if (axes_[i].role != AxisRole::kData && own[i] != 0) return false;
  }
  return true;
}

std::vector<std::vector<int>> Mesh::replica_groups() const {
  return groups_apart([](const MeshAxis& axis) { return axis.role != AxisRole::kData; });
}

std::vector<std::vector<int>> Mesh::gradient_groups() const {
  return groups_apart([](const MeshAxis& axis) { return axis.role == AxisRole::kModel; });
}

/// Returns the groups of ranks with the same coordinates on the axes that keep ranks apart.
template <typename IsApart>
std::vector<std::vector<int>> Mesh::groups_apart(const IsApart& is_apart) const {
  std::vector<std::vector<int>> groups;
  std::vector<std::vector<int>> keys;  // the groups' coordinates on those axes
  for (int rank = 0; rank < size(); ++rank) {
    auto key = coordinates(rank);
    for (size_t i = 0; i < axes_.size(); ++i) {
      if (!is_apart(axes_[i])) key[i] = 0;
    }
    const auto known = std::find(keys.begin(), keys.end(), key);
    const auto group = static_cast<size_t>(known - keys.begin());
    if (known == keys.end()) {
      keys.push_back(std::move(key));
      groups.emplace_back();
    }
    groups[group].push_back(rank);
  }
  return groups;
}

bool Mesh::has(const std::string& axis) const {
  return std::any_of(axes_.begin(), axes_.end(), [&](const auto& own) { return own.name == axis; });
}

Mesh Mesh::over(int num_replicas) const {
  if (axes_.empty()) return Mesh{{"data", num_replicas}};
  if (size() == num_replicas) return *this;
  throw InvalidArgument("[mesh] expected sizes that multiply to the number of replicas, which is " +
                        std::to_string(num_replicas) + ", but got " + str() + ": " +
                        suggestions(axes_, num_replicas) + " would do");
}

size_t Mesh::position_of(const std::string& axis) const {
  for (size_t i = 0; i < axes_.size(); ++i) {
    if (axes_[i].name == axis) return i;
  }
  throw InvalidArgument("[mesh] expected an axis of the mesh " + str() + ", but got " + quoted_excerpt(axis));
}

/// Returns by how much the ids of neighbours on the axis differ.
int Mesh::stride_of(size_t position) const {
  int stride = 1;
  for (size_t i = position + 1; i < axes_.size(); ++i) stride *= axes_[i].size;
  return stride;
}

std::vector<int> Mesh::coordinates(int replica) const {
  std::vector<int> coordinates;
  coordinates.reserve(axes_.size());
  for (size_t i = 0; i < axes_.size(); ++i) coordinates.push_back(replica / stride_of(i) % axes_[i].size);
  return coordinates;
}

std::vector<std::vector<int>> Mesh::groups(const std::string& axis) const {
  const size_t position = position_of(axis);
  const int stride = stride_of(position);
  const int length = axes_[position].size;
  std::vector<std::vector<int>> groups;
  for (int first = 0; first < size(); ++first) {
    if (first / stride % length != 0) continue;
    auto& group = groups.emplace_back();
    for (int i = 0; i < length; ++i) group.push_back(first + i * stride);
  }
  return groups;
}

std::vector<std::vector<int>> Mesh::groups_across(const std::string& axis) const {
  position_of(axis);  // throws
  return groups_apart([&](const MeshAxis& own) { return own.role == AxisRole::kModel || own.name == axis; });
}

std::string Mesh::str() const {
  std::string text;
  for (const auto& [name, size, role] : axes_) {
    if (!text.empty()) text += ',';
    text += name + '=' + std::to_string(size);
    if (role != usual_role(name)) text.append(":").append(name_of(role));
  }
  return text;
}

Mesh parse_mesh(const std::string& text) {
  std::vector<MeshAxis> axes;
  std::string_view rest = text;
  while (true) {
    const auto comma = rest.find(',');
    const auto part = rest.substr(0, comma);
    const auto equals = part.find('=');
    const auto digits = equals == std::string_view::npos ? std::string_view() : part.substr(equals + 1);
    int size = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), size);
    const std::string_view after(end, static_cast<size_t>(digits.data() + digits.size() - end));
    const auto role = role_in(after);
    if (digits.empty() || error != std::errc() || (!after.empty() && !role)) {
      throw InvalidArgument("[mesh] expected axes with their sizes, such as data=2,shard=4, but got " +
                            quoted_excerpt(text));
    }
    axes.push_back({std::string(part.substr(0, equals)), size});
    if (role) axes.back().role = *role;
    if (comma == std::string_view::npos) return Mesh(std::move(axes));
    rest.remove_prefix(comma + 1);
  }
}

}  // namespace lockstep
