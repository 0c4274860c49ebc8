#include "lockstep/runtime/store/store_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class StoreTableTest : public testing::Test {
 protected:
  /// Returns the answer to a request, if it came at once.
  std::optional<StoreReply> ask(uint64_t client, StoreRequest request) {
    const auto id = request.id = next_id_++;
    table_.handle(client, std::move(request));
    return answer_to(client, id);
  }
  std::optional<StoreReply> answer_to(uint64_t client, uint64_t id) const {
    const auto found = answers_.find({client, id});
    return found == answers_.end() ? std::nullopt : std::optional(found->second);
  }
  void set(const std::string& key, const std::string& value, uint64_t client = 1) {
    EXPECT_EQ(ask(client, {.op = StoreOp::kSet, .keys = {key}, .values = {value}})->status,
              StoreStatus::kDone);
  }
  std::vector<std::string> get(const std::string& key) {
    return ask(1, {.op = StoreOp::kGet, .keys = {key}})->values;
  }
  /// Returns the id of a wait that is not answered yet.
  uint64_t wait(std::vector<std::string> keys, std::vector<std::string> unless = {}, uint64_t client = 1) {
    const uint64_t id = next_id_;
    EXPECT_FALSE(ask(client, {.op = StoreOp::kGet, .keys = std::move(keys), .unless = std::move(unless)}));
    return id;
  }
  void erase(const std::string& key) { EXPECT_EQ(ask(1, {.op = StoreOp::kErase, .keys = {key}})->number, 1); }

  std::map<std::pair<uint64_t, uint64_t>, StoreReply> answers_;
  uint64_t next_id_ = 1;
  StoreTable table_{{.client_bytes = 1000, .client_waits = 8},
                    [this](uint64_t client, const StoreReply& reply) {
                      const bool is_first = answers_.emplace(std::pair(client, reply.id), reply).second;
                      EXPECT_TRUE(is_first) << "answered twice";
                    }};
};

TEST_F(StoreTableTest, ReturnsWhatWasSetLast) {
  set("a", "1");
  set("a", "2");
  EXPECT_THAT(get("a"), ElementsAre("2"));
  EXPECT_EQ(ask(2, {.op = StoreOp::kCount})->number, 1);
  EXPECT_EQ(ask(2, {.op = StoreOp::kCheck, .keys = {"a", "b"}})->number, 0);
  EXPECT_EQ(ask(2, {.op = StoreOp::kCheck, .keys = {"a"}})->number, 1);
}

TEST_F(StoreTableTest, AddsToDecimalNumbers) {
  EXPECT_EQ(ask(1, {.op = StoreOp::kAdd, .number = 0, .keys = {"n"}})->number, 0);
  EXPECT_EQ(table_.num_keys(), 0U);
  EXPECT_EQ(ask(1, {.op = StoreOp::kAdd, .number = 5, .keys = {"n"}})->number, 5);
  EXPECT_EQ(ask(2, {.op = StoreOp::kAdd, .number = -7, .keys = {"n"}})->number, -2);
  EXPECT_THAT(get("n"), ElementsAre("-2"));
  set("text", "five");
  EXPECT_EQ(ask(1, {.op = StoreOp::kAdd, .number = 1, .keys = {"text"}})->status, StoreStatus::kRefused);
  set("most", "9223372036854775807");
  EXPECT_EQ(ask(1, {.op = StoreOp::kAdd, .number = 1, .keys = {"most"}})->status, StoreStatus::kRefused);
}

TEST_F(StoreTableTest, AppendsAndErases) {
  ask(1, {.op = StoreOp::kAppend, .keys = {"a"}, .values = {"x"}});
  ask(2, {.op = StoreOp::kAppend, .keys = {"a"}, .values = {"y"}});
  EXPECT_THAT(get("a"), ElementsAre("xy"));
  erase("a");
  EXPECT_EQ(ask(1, {.op = StoreOp::kErase, .keys = {"a"}})->number, 0);
}

// The cases of c10d::TCPStore.
TEST_F(StoreTableTest, ComparesBeforeItSets) {
  const auto compare_set = [this](const std::string& expected, const std::string& desired) {
    return ask(1, {.op = StoreOp::kCompareSet, .keys = {"a"}, .values = {expected, desired}})->values;
  };
  EXPECT_THAT(compare_set("other", "new"), ElementsAre("other"));
  EXPECT_EQ(table_.num_keys(), 0U);
  EXPECT_THAT(compare_set("", "new"), ElementsAre("new"));
  EXPECT_THAT(compare_set("", "newer"), ElementsAre("new"));
  EXPECT_THAT(compare_set("new", "newer"), ElementsAre("newer"));
  EXPECT_THAT(get("a"), ElementsAre("newer"));
}

TEST_F(StoreTableTest, AnswersAWaitOnceItsLastKeyComes) {
  const auto waiting = wait({"a", "b"}, {"end"});
  set("b", "2");
  EXPECT_FALSE(answer_to(1, waiting));
  set("a", "1");
  EXPECT_THAT(answer_to(1, waiting)->values, ElementsAre("1", "2"));
  set("end", "");  // answers nothing twice
}

TEST_F(StoreTableTest, EndsAWaitByOneOfTheKeysThatItNames) {
  const auto waiting = wait({"a"}, {"end", "a", "end"});
  set("end", "");
  EXPECT_EQ(answer_to(1, waiting)->status, StoreStatus::kEnded);
  EXPECT_EQ(ask(1, {.op = StoreOp::kGet, .keys = {"b"}, .unless = {"end"}})->status, StoreStatus::kEnded);
  set("c", "3");
  EXPECT_THAT(ask(1, {.op = StoreOp::kGet, .keys = {"c"}, .unless = {"end"}})->values, ElementsAre("3"));
}

TEST_F(StoreTableTest, WaitsAnewForAKeyThatWasErasedMeanwhile) {
  const auto waiting = wait({"a", "b", "b"});
  set("a", "1");
  erase("a");
  set("b", "2");
  EXPECT_FALSE(answer_to(1, waiting));
  set("a", "3");
  EXPECT_THAT(answer_to(1, waiting)->values, ElementsAre("3", "2", "2"));
}

TEST_F(StoreTableTest, ForgetsWaitsThatAreCancelledOrWhoseClientHasGone) {
  const auto cancelled = wait({"a"});
  const auto gone = wait({"a"}, {}, 2);
  const auto other = wait({"a"}, {}, 3);
  EXPECT_FALSE(ask(3, {.op = StoreOp::kCancel, .number = static_cast<int64_t>(cancelled)}));  // not its own
  EXPECT_FALSE(ask(1, {.op = StoreOp::kCancel, .number = static_cast<int64_t>(cancelled)}));
  table_.forget(2);
  set("a", "1");
  EXPECT_FALSE(answer_to(1, cancelled));
  EXPECT_FALSE(answer_to(2, gone));
  EXPECT_TRUE(answer_to(3, other));
}

TEST_F(StoreTableTest, HoldsNoMoreOfOneClientThanTheLimit) {
  const std::string big(800, 'x');
  set("big", big);
  EXPECT_EQ(ask(1, {.op = StoreOp::kSet, .keys = {"b"}, .values = {big}})->status, StoreStatus::kRefused);
  EXPECT_EQ(ask(1, {.op = StoreOp::kAppend, .keys = {"big"}, .values = {big}})->status,
            StoreStatus::kRefused);
  set("b", big, 2);           // another client
  set("big", "small");        // which makes room
  set("b", "taken over", 1);  // is charged to client 1 from now on
  set("c", big, 2);
  erase("big");
  set("d", big, 1);
}

// A value that fits into no reply could never be read.
TEST(StoreTable, HoldsNoValueThatIsTooLargeForAReply) {
  StoreStatus status = StoreStatus::kDone;
  StoreTable table({}, [&](uint64_t, const StoreReply& reply) { status = reply.status; });
  const std::string half(kMaxStoreMessageBytes / 2, 'x');
  table.handle(1, {.op = StoreOp::kSet, .keys = {"a"}, .values = {half}});
  EXPECT_EQ(status, StoreStatus::kDone);
  table.handle(1, {.op = StoreOp::kAppend, .keys = {"a"}, .values = {"y"}});
  EXPECT_EQ(status, StoreStatus::kRefused);
  table.handle(1, {.op = StoreOp::kCompareSet, .keys = {"a"}, .values = {"other", "z"}});
  EXPECT_EQ(status, StoreStatus::kDone);
}

TEST_F(StoreTableTest, LetsOneClientWaitForNoMoreKeysThanTheLimit) {
  const auto first = wait({"a", "b", "c", "d"}, {"e", "f"});
  EXPECT_EQ(ask(1, {.op = StoreOp::kGet, .keys = {"g", "h", "i"}})->status, StoreStatus::kRefused);
  wait({"g", "h", "i"}, {}, 2);
  EXPECT_FALSE(ask(1, {.op = StoreOp::kCancel, .number = static_cast<int64_t>(first)}));
  wait({"g", "h", "i"});
}

TEST_F(StoreTableTest, RefusesRequestsWithTooFewOrTooManyKeysOrValues) {
  EXPECT_EQ(ask(1, {.op = StoreOp::kAdd})->status, StoreStatus::kRefused);
  EXPECT_EQ(ask(1, {.op = StoreOp::kSet, .keys = {"a"}})->status, StoreStatus::kRefused);
  EXPECT_EQ(ask(1, {.op = StoreOp::kCompareSet, .keys = {"a"}, .values = {"b"}})->status,
            StoreStatus::kRefused);
  EXPECT_EQ(ask(1, {.op = StoreOp::kErase, .keys = {"a", "b"}})->status, StoreStatus::kRefused);
  EXPECT_THAT(ask(1, {.op = StoreOp::kGet})->values, IsEmpty());
}

}  // namespace
}  // namespace lockstep
