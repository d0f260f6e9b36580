// See pickle.h. Opcodes are those of CPython's pickletools; comments give their names there.
#include "model/files/pickle.h"

#include "model/files/bad_file.h"
#include "model/files/utf8.h"

#include <algorithm>
#include <fmt/format.h>
#include <utility>

namespace entrodraft::model {
namespace {

constexpr std::size_t kMaxNameBytes = 1000; // of a tensor or a storage

enum class Kind : std::uint8_t { none, boolean, integer, real, text, tuple, list, dict, global, storage, tensor };

std::string name_of(Kind kind) {
    constexpr const char* kNames[] = {"None",   "a boolean", "a whole number", "a number",  "a text",  "a tuple",
                                      "a list", "a dict",    "a name",         "a storage", "a tensor"};
    return kNames[static_cast<std::size_t>(kind)];
}

// An element of the stack or the memo. A container, storage or tensor is an index into the machine's tables, so copies
// of the value are one object, as in Python.
struct Value {
    Kind kind = Kind::none;
    std::uint32_t place = 0; // in the tables; for a text, its length
    std::int64_t number = 0; // a boolean's or integer's value; a text's first byte; whether a dict is an OrderedDict
};

enum class Callable { ordered_dict, rebuild_tensor, rebuild_parameter, storage_type };

// The only names that a pickle may use.
struct KnownGlobal {
    std::string_view module;
    std::string_view name;
    Callable callable;
    std::string_view dtype = {}; // for a storage type
};

constexpr KnownGlobal kGlobals[] = {
    {"collections", "OrderedDict", Callable::ordered_dict},
    {"torch._utils", "_rebuild_tensor_v2", Callable::rebuild_tensor},
    {"torch._utils", "_rebuild_parameter", Callable::rebuild_parameter},
    {"torch", "FloatStorage", Callable::storage_type, "F32"},
    {"torch", "HalfStorage", Callable::storage_type, "F16"},
    {"torch", "BFloat16Storage", Callable::storage_type, "BF16"},
    {"torch", "DoubleStorage", Callable::storage_type, "F64"},
    {"torch", "LongStorage", Callable::storage_type, "I64"},
    {"torch", "IntStorage", Callable::storage_type, "I32"},
    {"torch", "ShortStorage", Callable::storage_type, "I16"},
    {"torch", "CharStorage", Callable::storage_type, "I8"},
    {"torch", "ByteStorage", Callable::storage_type, "U8"},
    {"torch", "BoolStorage", Callable::storage_type, "BOOL"},
};

std::string opcode_name(unsigned opcode) {
    constexpr std::pair<unsigned, const char*> kNames[] = {{'i', "INST"},       {'o', "OBJ"},          {0x81, "NEWOBJ"},
                                                           {0x82, "EXT"},       {0x83, "EXT"},         {0x84, "EXT"},
                                                           {0x92, "NEWOBJ_EX"}, {0x93, "STACK_GLOBAL"}};
    for (const auto& [code, name] : kNames)
        if (code == opcode) return fmt::format("0x{:02x} ({})", opcode, name);
    return fmt::format("0x{:02x}", opcode);
}

class Machine {
  public:
    Machine(std::span<const std::byte> pickle, const std::string& what)
        : pickle_(reinterpret_cast<const char*>(pickle.data()), pickle.size()), what_(what) {}

    std::vector<PickledTensor> read() {
        if (pickle_.size() > kMaxPickleBytes) {
            refuse(fmt::format("{} bytes are more than the {} that the pickle of a state dict may have", pickle_.size(),
                               kMaxPickleBytes));
        }
        while (step())
            continue;
        if (at_ != pickle_.size()) refuse("bytes follow the pickle's end");
        const Value root = pop();
        if (!stack_.empty() || !marks_.empty()) refuse("the pickle ends with values left over");
        return take_tensors(root);
    }

  private:
    [[noreturn]] void refuse(const std::string& reason) const {
        throw BadFile(fmt::format("{}: byte {}: {}", what_, opcode_at_, reason));
    }

    // Runs one opcode; returns false at the end.
    bool step() {
        opcode_at_ = at_;
        const auto opcode = static_cast<unsigned>(take_number(1));
        switch (opcode) {
        case '.': // STOP
            return false;
        case 0x80: // PROTO
            if (const auto protocol = take_number(1); protocol != 2) {
                refuse(fmt::format("pickle protocol {}; only 2 is read, which torch.save writes: save the model again "
                                   "with its default",
                                   protocol));
            }
            return true;
        case '(': // MARK
            count_value();
            marks_.push_back(stack_.size());
            return true;
        case 'q': // BINPUT
        case 'r': // LONG_BINPUT
            put(take_number(opcode == 'q' ? 1 : 4));
            return true;
        case 'c': // GLOBAL
            push(take_global());
            return true;
        case 'R': // REDUCE
            call();
            return true;
        case 'Q': // BINPERSID
            push_storage(pop());
            return true;
        case 'b': // BUILD: the dict's attributes, such as _metadata, which do not concern the tensors
            if (const Value state = pop(); state.kind != Kind::dict || top().kind != Kind::dict || top().number == 0) {
                refuse("attributes are set on " + name_of(top().kind));
            }
            return true;
        default:
            if (!push_plain(opcode) && !collect(opcode)) refuse("opcode " + opcode_name(opcode) + unknown());
            return true;
        }
    }

    static std::string unknown() {
        return " has no place in a state dict; nothing was run. If you trust the file, save the model as safetensors";
    }

    // Runs an opcode that pushes a value of the pickle or the memo.
    bool push_plain(unsigned opcode) {
        switch (opcode) {
        case 'N':
            push({Kind::none});
            return true;
        case 0x88: // NEWTRUE
        case 0x89: // NEWFALSE
            push({Kind::boolean, 0, opcode == 0x88});
            return true;
        case 'K': // BININT1
            push({Kind::integer, 0, static_cast<std::int64_t>(take_number(1))});
            return true;
        case 'M': // BININT2
            push({Kind::integer, 0, static_cast<std::int64_t>(take_number(2))});
            return true;
        case 'J': // BININT
            push({Kind::integer, 0, take_signed(4)});
            return true;
        case 0x8a: // LONG1
            push({Kind::integer, 0, take_signed(take_number(1))});
            return true;
        case 'G': // BINFLOAT; its value is not used
            take(8);
            push({Kind::real});
            return true;
        case 'X': { // BINUNICODE
            const std::size_t length = take_number(4);
            const std::string_view text = take(length);
            push({Kind::text, static_cast<std::uint32_t>(length), text.data() - pickle_.data()});
            return true;
        }
        case 'h': // BINGET
        case 'j': // LONG_BINGET
            push(get(take_number(opcode == 'h' ? 1 : 4)));
            return true;
        default:
            return false;
        }
    }

    // Runs an opcode that makes a container or puts values into one.
    bool collect(unsigned opcode) {
        switch (opcode) {
        case ')': // EMPTY_TUPLE
        case ']': // EMPTY_LIST
        case '}': // EMPTY_DICT
            push_container(opcode == ')' ? Kind::tuple : opcode == ']' ? Kind::list : Kind::dict, {});
            return true;
        case 't': // TUPLE
            push_container(Kind::tuple, pop_to_mark());
            return true;
        case 0x85: // TUPLE1
        case 0x86: // TUPLE2
        case 0x87: // TUPLE3
            push_container(Kind::tuple, pop_many(opcode - 0x84));
            return true;
        case 'a': // APPEND
        case 'e': // APPENDS
            add_to(Kind::list, opcode == 'a' ? pop_many(1) : pop_to_mark());
            return true;
        case 's': // SETITEM
        case 'u': // SETITEMS
            add_to(Kind::dict, opcode == 's' ? pop_many(2) : pop_to_mark());
            return true;
        default:
            return false;
        }
    }

    std::string_view take(std::size_t n) {
        if (n > pickle_.size() - at_) refuse("the pickle is cut short");
        return pickle_.substr(std::exchange(at_, at_ + n), n);
    }
    std::size_t take_number(std::size_t n) { // little-endian, n <= 4
        std::size_t value = 0, shift = 0;
        for (const char c : take(n)) {
            value |= static_cast<std::size_t>(static_cast<unsigned char>(c)) << shift;
            shift += 8;
        }
        return value;
    }
    std::int64_t take_signed(std::size_t n) { // two's complement; no bytes are 0
        if (n > 8) refuse(fmt::format("a whole number of {} bytes does not fit 64 bits", n));
        const std::string_view bytes = take(n);
        std::uint64_t value = !bytes.empty() && (bytes.back() & 0x80) != 0 ? ~std::uint64_t{0} : 0;
        for (std::size_t i = n; i-- > 0;)
            value = value << 8 | static_cast<unsigned char>(bytes[i]);
        return static_cast<std::int64_t>(value);
    }
    std::string_view take_line() {
        const auto end = pickle_.find('\n', at_);
        if (end == std::string_view::npos) refuse("the pickle is cut short");
        const auto line = take(end - at_);
        take(1);
        return line;
    }

    void count_value() {
        if (++n_values_ > kMaxPickleValues) {
            refuse(fmt::format("more than {} values are too many for a state dict", kMaxPickleValues));
        }
    }
    void push(Value value) {
        count_value();
        stack_.push_back(value);
    }
    void push_container(Kind kind, std::vector<Value> items, bool is_ordered = false) {
        push({kind, static_cast<std::uint32_t>(containers_.size()), is_ordered});
        containers_.push_back(std::move(items));
    }
    std::size_t n_above_mark() const { return stack_.size() - (marks_.empty() ? 0 : marks_.back()); }
    const Value& top() const {
        if (n_above_mark() == 0) refuse("an opcode finds too few values");
        return stack_.back();
    }
    Value pop() {
        const Value value = top();
        stack_.pop_back();
        return value;
    }
    std::vector<Value> pop_many(std::size_t n) {
        if (n_above_mark() < n) refuse("an opcode finds too few values");
        std::vector<Value> values(stack_.end() - static_cast<std::ptrdiff_t>(n), stack_.end());
        stack_.resize(stack_.size() - n);
        return values;
    }
    std::vector<Value> pop_to_mark() {
        if (marks_.empty()) refuse("an opcode finds no mark");
        std::vector<Value> values = pop_many(n_above_mark());
        marks_.pop_back();
        return values;
    }
    void put(std::size_t place) {
        if (place >= kMaxPickleValues) refuse(fmt::format("a memo of {} entries is too long", place));
        if (place >= memo_.size()) memo_.resize(place + 1, {top(), false});
        memo_[place] = {top(), true};
    }
    Value get(std::size_t place) const {
        if (place >= memo_.size() || !memo_[place].second) {
            refuse(fmt::format("the memo has no entry {}", place));
        }
        return memo_[place].first;
    }
    void add_to(Kind kind, const std::vector<Value>& items) {
        if (top().kind != kind) refuse("items are put into " + name_of(top().kind));
        if (kind == Kind::dict && items.size() % 2 != 0) refuse("a key of a dict has no value");
        auto& container = containers_[top().place];
        container.insert(container.end(), items.begin(), items.end());
    }

    Value take_global() {
        const std::string_view module = take_line(), name = take_line();
        for (std::size_t i = 0; i < std::size(kGlobals); ++i) {
            if (kGlobals[i].module == module && kGlobals[i].name == name)
                return {Kind::global, static_cast<std::uint32_t>(i)};
        }
        refuse("the name " + in_quotes(std::string(module) + "." + std::string(name)) + unknown());
    }

    // Calls one of the three functions with the tuple of arguments above it.
    void call() {
        const Value arguments = pop(), function = pop();
        if (arguments.kind != Kind::tuple || function.kind != Kind::global) {
            refuse(name_of(function.kind) + " is called with " + name_of(arguments.kind));
        }
        const std::vector<Value>& values = containers_[arguments.place];
        const KnownGlobal& global = kGlobals[function.place];
        switch (global.callable) {
        case Callable::ordered_dict:
            if (!values.empty()) refuse("OrderedDict is called with arguments");
            return push_container(Kind::dict, {}, true);
        case Callable::rebuild_tensor:
            return push_tensor(values);
        case Callable::rebuild_parameter: // (tensor, requires_grad, hooks)
            if (values.size() != 3 || values[0].kind != Kind::tensor) refuse("a parameter that holds no tensor");
            return push(values[0]);
        case Callable::storage_type:
            refuse("the storage type " + std::string(global.name) + " is called");
        }
    }

    // A storage's id is ("storage", type, key, device, elements).
    void push_storage(const Value& id) {
        const auto is_id = [&](const std::vector<Value>& values) {
            return values.size() == 5 && values[0].kind == Kind::text && text_of(values[0]) == "storage" &&
                   values[1].kind == Kind::global && !kGlobals[values[1].place].dtype.empty() &&
                   values[2].kind == Kind::text && values[2].place <= kMaxNameBytes &&
                   values[4].kind == Kind::integer && values[4].number >= 0;
        };
        if (id.kind != Kind::tuple || !is_id(containers_[id.place])) refuse("a persistent id that names no storage");
        const std::vector<Value>& values = containers_[id.place];
        push({Kind::storage, static_cast<std::uint32_t>(storages_.size())});
        storages_.push_back(
            {text_of(values[2]), kGlobals[values[1].place].dtype, static_cast<std::uint64_t>(values[4].number)});
    }

    // A tensor is (storage, offset, shape, strides, requires_grad, hooks) and, in newer files, metadata.
    void push_tensor(const std::vector<Value>& values) {
        if (values.size() < 6 || values.size() > 7 || values[0].kind != Kind::storage ||
            values[1].kind != Kind::integer || values[1].number < 0) {
            refuse("a tensor that is not described by storage, offset, shape and strides");
        }
        const bool has_metadata = values.size() == 7 && values[6].kind != Kind::none &&
                                  (values[6].kind != Kind::dict || !containers_[values[6].place].empty());
        if (has_metadata) refuse("a tensor with metadata, as of a negative view; save it with .resolve_neg()");
        PickledTensor tensor;
        tensor.storage = storages_[values[0].place];
        tensor.offset = static_cast<std::uint64_t>(values[1].number);
        tensor.shape = whole_numbers(values[2]);
        tensor.strides = whole_numbers(values[3]);
        if (tensor.shape.size() != tensor.strides.size()) refuse("a tensor whose shape and strides differ in number");
        push({Kind::tensor, static_cast<std::uint32_t>(tensors_.size())});
        tensors_.push_back(std::move(tensor));
    }

    std::vector<std::int64_t> whole_numbers(const Value& tuple) const {
        if (tuple.kind != Kind::tuple) refuse("a tensor whose shape is " + name_of(tuple.kind));
        const std::vector<Value>& values = containers_[tuple.place];
        if (values.size() > kMaxTensorDims) {
            refuse(fmt::format("a tensor of {} dimensions; at most {} are read", values.size(), kMaxTensorDims));
        }
        std::vector<std::int64_t> numbers;
        for (const Value& value : values) {
            if (value.kind != Kind::integer || value.number < 0) {
                refuse("shape and strides of a tensor must be whole numbers from 0");
            }
            numbers.push_back(value.number);
        }
        return numbers;
    }

    std::string_view text_of(const Value& text) const {
        return pickle_.substr(static_cast<std::size_t>(text.number), text.place);
    }

    std::vector<PickledTensor> take_tensors(const Value& root) const {
        if (root.kind != Kind::dict) {
            refuse_content("holds " + name_of(root.kind) + " where a dict of tensors must be");
        }
        const std::vector<Value>& items = containers_[root.place];
        require_all_tensors(items);
        require_good_names(items);
        std::vector<PickledTensor> tensors;
        for (std::size_t i = 0; i < items.size(); i += 2) {
            tensors.push_back(tensors_[items[i + 1].place]);
            tensors.back().name = text_of(items[i]);
        }
        return tensors;
    }

    // This runs before any name is copied: a memo may repeat a long name any number of times.
    void require_good_names(const std::vector<Value>& items) const {
        std::vector<std::string_view> names;
        for (std::size_t i = 0; i < items.size(); i += 2) {
            const std::string_view name = text_of(items[i]);
            const auto refuse_name = [&](const std::string& reason) {
                refuse_content("tensor " + in_quotes(name) + ": " + reason);
            };
            if (name.size() > kMaxNameBytes) {
                refuse_name(fmt::format("a name of {} bytes is longer than {}", name.size(), kMaxNameBytes));
            }
            if (first_invalid_utf8(name) != std::string_view::npos) refuse_name("the name is not valid UTF-8");
            if (name.find('\0') != std::string_view::npos) refuse_name("a NUL character in the name");
            names.push_back(name);
        }
        std::sort(names.begin(), names.end());
        const auto twice = std::adjacent_find(names.begin(), names.end());
        if (twice != names.end()) refuse_content("tensor " + in_quotes(*twice) + ": the name appears twice");
    }

    // The message names a dict first: training runs save the state dict as one entry of several.
    void require_all_tensors(const std::vector<Value>& items) const {
        const Value* wrong = nullptr;
        for (std::size_t i = 0; i < items.size(); i += 2) {
            if (items[i].kind != Kind::text) {
                refuse_content("a key is " + name_of(items[i].kind) + ", not a tensor's name");
            }
            const Kind kind = items[i + 1].kind;
            if (kind != Kind::tensor && (wrong == nullptr || (kind == Kind::dict && wrong[1].kind != Kind::dict))) {
                wrong = &items[i];
            }
        }
        if (wrong == nullptr) return;
        refuse_content("the entry " + in_quotes(text_of(*wrong)) + " is " + name_of(wrong[1].kind) +
                       ", not a tensor; save the model's state_dict() by itself");
    }
    [[noreturn]] void refuse_content(const std::string& reason) const { throw BadFile(what_ + ": " + reason); }

    std::string_view pickle_;
    const std::string& what_;
    std::size_t at_ = 0;        // the next byte
    std::size_t opcode_at_ = 0; // start of the current opcode
    std::size_t n_values_ = 0;  // pushed so far
    std::vector<Value> stack_;
    std::vector<std::size_t> marks_;             // heights of the stack
    std::vector<std::pair<Value, bool>> memo_;   // the flag says whether it is set
    std::vector<std::vector<Value>> containers_; // in a dict, keys and values alternate
    std::vector<PickledStorage> storages_;
    std::vector<PickledTensor> tensors_;
};

} // namespace

std::vector<PickledTensor> read_pickled_tensors(std::span<const std::byte> pickle, const std::string& what) {
    return Machine(pickle, what).read();
}

} // namespace entrodraft::model
