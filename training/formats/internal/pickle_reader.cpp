#include "lockstep/training/formats/internal/pickle_reader.h"

#include <bit>
#include <memory>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "lockstep/runtime/base/files/checkpoint_error.h"
#include "lockstep/runtime/base/internal/text_excerpt.h"
#include "lockstep/training/formats/internal/pickle_opcodes.h"
#include "lockstep/training/formats/internal/pickle_tree.h"
#include "lockstep/training/formats/internal/tensor_size.h"

namespace lockstep {
namespace {

using namespace pickle;  // NOLINT: opcodes, of which every case has one

constexpr const char* kPart = "data.pkl";
constexpr size_t kMaxArguments = 8;     // of a function or a storage
constexpr size_t kMaxRecordName = 255;  // of a storage
constexpr size_t kMaxMarks = 4 * kMaxNesting;

class PickleReader {
 public:
  PickleReader(std::string_view bytes, const std::string& file) : bytes_(bytes), file_(file) {}

  PickleValue read() {
    if (take() != kProto || take() != kProtocol) fail("a pickle of protocol 2", "another beginning");
    while (true) {
      const char opcode = take();
      if (opcode == kStop) break;
      run(opcode);
    }
    const NodeIndex root = pop();
    return pickle_tree(nodes_, root, bytes_.size(), file_);
  }

 private:
  [[noreturn]] void fail(const std::string& expected, const std::string& actual) const {
    throw CheckpointError(file_, kPart, expected, actual + " at byte " + std::to_string(next_));
  }

  // Reading bytes.

  std::string_view take(size_t count) {
    if (count > bytes_.size() - next_) fail("more bytes", "the end");
    next_ += count;
    return bytes_.substr(next_ - count, count);
  }

  char take() { return take(1)[0]; }

  uint64_t take_unsigned(size_t num_bytes) {
    const auto bytes = take(num_bytes);
    uint64_t value = 0;
    for (size_t i = num_bytes; i-- > 0;) value = value << 8 | static_cast<unsigned char>(bytes[i]);
    return value;
  }

  std::string take_line() {
    const size_t end = bytes_.find('\n', next_);
    if (end == std::string_view::npos) fail("a line", "no end of it");
    std::string line(take(end - next_));
    ++next_;
    return line;
  }

  int64_t take_long() {
    const uint64_t num_bytes = take_unsigned(1);
    if (num_bytes > sizeof(int64_t))
      fail("an integer of at most 64 bits", std::to_string(8 * num_bytes) + " bits");
    if (num_bytes == 0) return 0;
    const auto shift = 64 - 8 * num_bytes;  // moves the sign to the top bit
    return static_cast<int64_t>(take_unsigned(num_bytes) << shift) >> shift;
  }

  double take_float() {
    uint64_t bits = 0;
    for (const char byte : take(sizeof bits)) bits = bits << 8 | static_cast<unsigned char>(byte);
    return std::bit_cast<double>(bits);
  }

  // The value stack.

  // A byte or two of a pickle can make a value, which takes a hundred times as much memory.
  void check_count(size_t count, size_t limit, const char* of) const {
    if (count >= limit) fail("at most " + std::to_string(limit) + " " + of, "more");
  }

  void push(PickleNode node) {
    check_count(nodes_.size(), kMaxPickledValues, "values");
    nodes_.push_back(std::move(node));
    push_index(static_cast<NodeIndex>(nodes_.size() - 1));
  }

  void push_index(NodeIndex index) {
    check_count(stack_.size(), kMaxPickledValues, "values");
    stack_.push_back(index);
  }

  void remember(uint64_t key) {
    check_count(memo_.size(), kMaxPickledValues, "values to refer to");
    memo_[key] = top();
  }

  size_t bottom() const { return marks_.empty() ? 0 : marks_.back(); }

  NodeIndex top() const {
    if (stack_.size() == bottom()) fail("a value", "none");
    return stack_.back();
  }

  NodeIndex pop() {
    const NodeIndex index = top();
    stack_.pop_back();
    return index;
  }

  std::vector<NodeIndex> pop_to_mark() {
    if (marks_.empty()) fail("a mark", "none");
    std::vector<NodeIndex> items(stack_.begin() + static_cast<ptrdiff_t>(marks_.back()), stack_.end());
    stack_.resize(marks_.back());
    marks_.pop_back();
    return items;
  }

  template <typename T>
  T& node(NodeIndex index, const char* kind) {
    T* node = std::get_if<T>(&nodes_[index]);
    if (node == nullptr) fail(kind, "another value");
    return *node;
  }

  const std::vector<NodeIndex>& tuple(NodeIndex index) { return node<PickledTuple>(index, "a tuple").items; }
  /// Returns a copy of a short tuple's items, since values may move while others are made. Copying a long
  /// tuple could be repeated at little cost to the pickle.
  std::vector<NodeIndex> arguments_in(NodeIndex index) {
    const auto& items = tuple(index);
    if (items.size() > kMaxArguments)
      fail("at most " + std::to_string(kMaxArguments) + " arguments", std::to_string(items.size()));
    return items;
  }

  const std::string& text(NodeIndex index) { return node<std::string>(index, "a string"); }

  int64_t size(NodeIndex index) {
    const int64_t value = node<int64_t>(index, "an integer");
    if (value < 0) fail("a size, stride or offset", std::to_string(value));
    return value;
  }

  std::vector<int64_t> sizes(NodeIndex index) {
    const auto& items = tuple(index);
    if (items.size() > kMaxTensorDimensions)
      fail("at most " + std::to_string(kMaxTensorDimensions) + " dimensions", std::to_string(items.size()));
    std::vector<int64_t> values;
    values.reserve(items.size());
    for (const NodeIndex item : items) values.push_back(size(item));
    return values;
  }

  // Opcodes.

  void run(char opcode) {
    switch (opcode) {
      case kMark:
        check_count(marks_.size(), kMaxMarks, "marks");
        return marks_.push_back(stack_.size());
      case kNone:
        return push(std::monostate());
      case kNewTrue:
        return push(true);
      case kNewFalse:
        return push(false);
      case kBinInt:
        return push(static_cast<int64_t>(static_cast<int32_t>(take_unsigned(4))));
      case kBinInt1:
        return push(static_cast<int64_t>(take_unsigned(1)));
      case kBinInt2:
        return push(static_cast<int64_t>(take_unsigned(2)));
      case kLong1:
        return push(take_long());
      case kBinFloat:
        return push(take_float());
      case kBinUnicode:
        return push(std::string(take(take_unsigned(4))));
      case kEmptyList:
        return push(PickledList());
      case kEmptyTuple:
        return push(PickledTuple());
      case kEmptyDict:
        return push(PickledDict());
      case kAppend:
        return append({pop()});
      case kAppends:
        return append(pop_to_mark());
      case kTuple1:
        return push_tuple(1);
      case kTuple2:
        return push_tuple(2);
      case kTuple3:
        return push_tuple(3);
      case kTuple:
        return push(PickledTuple{pop_to_mark()});
      case kSetItem: {
        const NodeIndex value = pop();
        const NodeIndex key = pop();
        return set_items({key, value});
      }
      case kSetItems:
        return set_items(pop_to_mark());
      case kGlobal:
        return push_global();
      case kReduce:
        return reduce();
      case kBuild:
        // Drops an OrderedDict's attributes, such as the module versions of state_dict().
        pop();
        node<PickledDict>(top(), "a dict to add attributes to");
        return;
      case kBinPersistentId:
        return push_storage();
      case kBinPut:
        return remember(take_unsigned(1));
      case kLongBinPut:
        return remember(take_unsigned(4));
      case kBinGet:
        return push_remembered(take_unsigned(1));
      case kLongBinGet:
        return push_remembered(take_unsigned(4));
      default:
        fail("an opcode of plain values", "the byte " + std::to_string(static_cast<unsigned char>(opcode)));
    }
  }

  void append(const std::vector<NodeIndex>& items) {
    auto& list = node<PickledList>(top(), "a list").items;
    list.insert(list.end(), items.begin(), items.end());
  }

  void push_tuple(size_t count) {
    std::vector<NodeIndex> items(count);
    while (count > 0) items[--count] = pop();
    push(PickledTuple{std::move(items)});
  }

  void set_items(const std::vector<NodeIndex>& items) {
    auto& entries = node<PickledDict>(top(), "a dict").entries;
    if (items.size() % 2 != 0) fail("a value for each key", "none for the last");
    for (size_t i = 0; i < items.size(); i += 2) entries.emplace_back(items[i], items[i + 1]);
  }

  void push_global() {
    std::string module = take_line();
    push(PickledGlobal{module + "." + take_line()});
  }

  void push_remembered(uint64_t key) {
    const auto found = memo_.find(key);
    if (found == memo_.end()) fail("a reference to an earlier value", "one to none");
    push_index(found->second);
  }

  /// Takes ("storage", class, record, device, elements), as torch.save() writes it.
  void push_storage() {
    const std::vector<NodeIndex> items = arguments_in(pop());
    if (items.size() != 5 || text(items[0]) != "storage") fail("a tensor's storage", "another persistent id");
    const std::string& global = node<PickledGlobal>(items[1], "a class of storage").name;
    const bool is_untyped = global == "torch.storage.UntypedStorage";
    const PickledDtype* dtype = nullptr;
    if (!is_untyped && global.starts_with("torch."))
      dtype = find_pickled_storage(std::string_view(global).substr(6));
    if (!is_untyped && dtype == nullptr) fail("a class of storage", quoted_excerpt(global));
    const auto elements = static_cast<uint64_t>(size(items[4]));
    uint64_t bytes = 0;
    if (__builtin_mul_overflow(elements, is_untyped ? 1 : dtype->element_size, &bytes))
      fail("a storage that fits into memory", std::to_string(elements) + " elements");
    const std::string& record = text(items[2]);
    if (record.size() > kMaxRecordName)
      fail("a short name of a record", std::to_string(record.size()) + " bytes");
    check_count(num_storages_++, kMaxPickledTensors, "storages");
    push(std::make_unique<PickledStorage>(PickledStorage{dtype, record, bytes}));
  }

  void reduce() {
    const std::vector<NodeIndex> arguments = arguments_in(pop());
    const std::string function = node<PickledGlobal>(pop(), "a function to call").name;
    if (function == "collections.OrderedDict" && arguments.empty()) {
      push(PickledDict());
    } else if (function == "torch.Size" && arguments.size() == 1) {
      tuple(arguments[0]);
      push_index(arguments[0]);
    } else if (function == "torch._utils._rebuild_tensor_v2" &&
               (arguments.size() == 6 || arguments.size() == 7)) {
      push_tensor(arguments, /*num_before_metadata=*/6);
    } else if (function == "torch._utils._rebuild_tensor_v3" &&
               (arguments.size() == 7 || arguments.size() == 8)) {
      push_tensor(arguments, /*num_before_metadata=*/7);
    } else if (function == "torch._utils._rebuild_parameter" && arguments.size() == 3) {
      node<std::unique_ptr<PickledTensor>>(arguments[0], "a tensor");
      push_index(arguments[0]);
    } else {
      fail("plain values and tensors", "a call of " + quoted_excerpt(function));
    }
  }

  /// Takes (storage, offset, shape, strides, requires_grad, hooks[, dtype][, metadata]).
  void push_tensor(const std::vector<NodeIndex>& arguments, size_t num_before_metadata) {
    const auto& storage = *node<std::unique_ptr<PickledStorage>>(arguments[0], "a storage");
    const PickledDtype* dtype = storage.dtype;
    if (num_before_metadata == 7) {
      const std::string& global = node<PickledGlobal>(arguments[6], "a dtype").name;
      dtype = global.starts_with("torch.") ? find_pickled_dtype(std::string_view(global).substr(6)) : nullptr;
      if (dtype == nullptr) fail("a dtype of tensors", quoted_excerpt(global));
    }
    if (dtype == nullptr) fail("a storage of a dtype", "one without");
    if (arguments.size() > num_before_metadata) require_no_metadata(arguments[num_before_metadata]);
    check_count(num_tensors_++, kMaxPickledTensors, "tensors");
    auto tensor = std::make_unique<PickledTensor>(PickledTensor{.dtype = std::string(dtype->name),
                                                                .storage = storage.record,
                                                                .storage_bytes = storage.bytes,
                                                                .offset = size(arguments[1]),
                                                                .shape = sizes(arguments[2]),
                                                                .strides = sizes(arguments[3])});
    if (tensor->shape.size() != tensor->strides.size())
      fail("a stride for each size", "another number of them");
    push(std::move(tensor));
  }

  /// Metadata may ask for the elements to be conjugated or negated.
  void require_no_metadata(NodeIndex index) {
    if (std::holds_alternative<std::monostate>(nodes_[index])) return;
    if (!node<PickledDict>(index, "no metadata of a tensor").entries.empty())
      fail("a tensor as it is", "one to be conjugated or negated");
  }

  std::string_view bytes_;
  const std::string& file_;
  size_t next_ = 0;
  std::vector<PickleNode> nodes_;
  std::vector<NodeIndex> stack_;
  std::vector<size_t> marks_;
  std::unordered_map<uint64_t, NodeIndex> memo_;
  size_t num_storages_ = 0;
  size_t num_tensors_ = 0;
};

}  // namespace

PickleValue read_pickle(std::string_view bytes, const std::string& file) {
  if (bytes.size() > kMaxPickleBytes) {
    throw CheckpointError(file, kPart, "at most " + std::to_string(kMaxPickleBytes) + " bytes",
                          std::to_string(bytes.size()));
  }
  return PickleReader(bytes, file).read();
}

}  // namespace lockstep
