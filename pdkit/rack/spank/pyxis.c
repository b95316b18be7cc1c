/* Accepts the options of NVIDIA's Pyxis (0.24) on a machine without enroot.
 *
 * The values are checked as Pyxis checks them. Each task that asks for a container is written down as one
 * JSON line, gets a mount namespace of its own with the asked bind mounts, and starts in the asked folder.
 * There is no image: the task sees this machine's files. An image given as a path must be a file.
 *
 * Plugin arguments: log=FILE, the record; mountpoints=FILE, every folder or file made for a mount, so that
 * it can be removed when the rack stops.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <slurm/spank.h>

SPANK_PLUGIN(pyxis, 1);

#define MAX_MOUNTS 128
#define BATCH_STEP 0xfffffffbu
#define MEANS_OFF 0x100

enum option {
	IMAGE, MOUNTS, WORKDIR, NAME, SAVE, ENV, UNSHARE, /* carry a text */
	HOME, REMAP, ENTRYPOINT, ENTRYPOINT_LOG, WRITABLE, /* are on or off */
	OPTIONS
};

static const char *const key[OPTIONS] = {
	"image", "mounts", "workdir", "name", "save", "env", "unshare",
	"mount_home", "remap_root", "entrypoint", "entrypoint_log", "writable",
};
static const char *const contradiction[OPTIONS] = {
	[HOME] = "both --container-mount-home and --no-container-mount-home were specified",
	[REMAP] = "both --container-remap-root and --no-container-remap-root were specified",
	[ENTRYPOINT] = "both --container-entrypoint and --no-container-entrypoint were specified",
	[WRITABLE] = "both --container-writable and --container-readonly were specified",
};

struct mount_entry {
	char *source, *target, *flags;
};

static char *text_of[OPTIONS];
static int flag_of[OPTIONS] = { [HOME] = -1, [REMAP] = -1, [ENTRYPOINT] = -1, [ENTRYPOINT_LOG] = -1, [WRITABLE] = -1 };
static struct mount_entry mounts[MAX_MOUNTS];
static int mount_count;
static const char *log_path, *mountpoints_path;

static int fail(const char *format, ...)
{
	char message[1024];
	va_list values;

	va_start(values, format);
	vsnprintf(message, sizeof message, format, values);
	va_end(values);
	slurm_error("pyxis: %s", message);
	return -1;
}

/* --- the values ------------------------------------------------------------------------------------ */

static bool is_path(const char *text)
{
	return *text == '/' || *text == '.';
}

static const struct {
	const char *name;
	unsigned long set;
} known_flags[] = {
	{ "ro", MS_RDONLY }, { "rw", 0 }, { "bind", 0 }, { "rbind", 0 }, { "nosuid", MS_NOSUID }, { "nodev", MS_NODEV },
	{ "noexec", MS_NOEXEC }, { "private", 0 }, { "rprivate", 0 }, { "slave", 0 }, { "rslave", 0 }, { "shared", 0 },
	{ "rshared", 0 }, { "unbindable", 0 }, { "x-create=auto", 0 }, { "x-create=dir", 0 }, { "x-create=file", 0 },
	{ "x-detach", 0 },
};

/* Pyxis separates flags by '+', because ',' separates mounts. */
static int flag_bits(const char *flags, unsigned long *bits)
{
	char *copy = strdup(flags), *rest = copy, *flag;
	int result = 0;

	*bits = 0;
	while (!result && (flag = strsep(&rest, "+"))) {
		size_t i, known = sizeof known_flags / sizeof *known_flags;

		for (i = 0; i < known && strcmp(flag, known_flags[i].name); i++)
			;
		if (i == known)
			result = fail("--container-mounts: unknown mount flag: %s", flag);
		else
			*bits |= known_flags[i].set;
	}
	free(copy);
	return result;
}

static int add_mount(const char *entry)
{
	char *rest = strdup(entry), *source = strsep(&rest, ":"), *target = rest ? strsep(&rest, ":") : source;
	const char *flags = rest ? rest : "";
	unsigned long bits;

	if (!*source || !*target)
		return fail("--container-mounts: invalid format: %s", entry);
	if (!is_path(source) && strcmp(source, "tmpfs") && strcmp(source, "umount"))
		return fail("mount source must be a relative path, an absolute path, \"tmpfs\" or \"umount\": %s", source);
	if (!is_path(target))
		return fail("mount target must be a relative path or an absolute path: %s", target);
	if (is_path(source) && *flags && flag_bits(flags, &bits))
		return -1;
	for (int i = 0; i < mount_count; i++)
		if (!strcmp(mounts[i].source, source) && !strcmp(mounts[i].target, target) && !strcmp(mounts[i].flags, flags))
			return 0; /* Slurm hands an option over twice. */
	if (mount_count == MAX_MOUNTS)
		return fail("--container-mounts: more than %d mounts", MAX_MOUNTS);
	mounts[mount_count++] = (struct mount_entry){ source, target, strdup(flags) };
	return 0;
}

static int each(const char *list, int (*take)(const char *))
{
	char *copy = strdup(list), *rest = copy, *item;
	int result = 0;

	while (!result && (item = strsep(&rest, ",")))
		result = take(item);
	free(copy);
	return result;
}

static int check_env(const char *name)
{
	return *name ? 0 : fail("--container-env: empty variable name");
}

static int check_unshare(const char *name)
{
	if (!strcmp(name, "net") || !strcmp(name, "ipc") || !strcmp(name, "uts"))
		return 0;
	return fail("--container-unshare: unknown namespace '%s'", name);
}

static int check_name(const char *text)
{
	const char *flags = strchr(text, ':');

	if (!*text || flags == text)
		return fail("--container-name: empty name");
	if (!flags || !flags[1] || !strcmp(flags, ":auto") || !strcmp(flags, ":create") || !strcmp(flags, ":exec") ||
	    !strcmp(flags, ":no_exec"))
		return 0;
	return fail("--container-name: flag must be \"auto\", \"create\", \"exec\" or \"no_exec\"");
}

static int check_text(enum option option, const char *text)
{
	switch (option) {
	case MOUNTS:
		return each(text, add_mount);
	case ENV:
		return each(text, check_env);
	case UNSHARE:
		return each(text, check_unshare);
	case NAME:
		return check_name(text);
	case SAVE:
		return text[strlen(text) - 1] == '/' ? fail("--container-save: target is a directory") : 0;
	case IMAGE:
		return strchr(text, ' ') ? fail("--container-image: a space in the image: %s", text) : 0;
	default:
		return 0;
	}
}

static int take_text(enum option option, const char *text)
{
	bool adds_up = option == MOUNTS || option == ENV || option == UNSHARE;
	char *before = text_of[option];

	if (!text || !*text)
		return fail("--container-%s: argument required", key[option]);
	if (before && strcmp(before, text) && !adds_up)
		return fail("--container-%s specified multiple times", key[option]);
	if (check_text(option, text))
		return -1;
	if (!before)
		text_of[option] = strdup(text);
	else if (strcmp(before, text) && asprintf(&text_of[option], "%s,%s", before, text) < 0)
		return fail("could not allocate memory");
	return 0;
}

static int take(int value, const char *text, int remote)
{
	enum option option = value & ~MEANS_OFF;
	int wanted = !(value & MEANS_OFF);

	(void)remote;
	if (option < HOME)
		return take_text(option, text);
	if (contradiction[option] && flag_of[option] != -1 && flag_of[option] != wanted)
		return fail("%s", contradiction[option]);
	flag_of[option] = wanted;
	return 0;
}

#define TEXT(word, shape, help, option) { word, shape, "[pyxis] " help, 1, option, take }
#define FLAG(word, help, value) { word, NULL, "[pyxis] " help, 0, value, take }
static struct spank_option options[] = {
	TEXT("container-image", "[USER@][REGISTRY#]IMAGE[:TAG]|PATH", "the image, or the path of a squashfs file", IMAGE),
	TEXT("container-mounts", "SRC:DST[:FLAGS][,SRC:DST...]", "bind mounts; flags are joined by \"+\"", MOUNTS),
	TEXT("container-workdir", "PATH", "working directory inside the container", WORKDIR),
	TEXT("container-name", "NAME", "name to keep the container filesystem under", NAME),
	TEXT("container-save", "PATH", "save the container to a squashfs file", SAVE),
	TEXT("container-env", "NAME[,NAME...]", "variables that the host overrides", ENV),
	TEXT("container-unshare", "NS[,NS...]", "new namespaces: net, ipc, uts", UNSHARE),
	FLAG("container-mount-home", "mount the home directory", HOME),
	FLAG("no-container-mount-home", "do not mount the home directory", HOME | MEANS_OFF),
	FLAG("container-remap-root", "be root inside the container", REMAP),
	FLAG("no-container-remap-root", "keep the user inside the container", REMAP | MEANS_OFF),
	FLAG("container-entrypoint", "run the image's entrypoint", ENTRYPOINT),
	FLAG("no-container-entrypoint", "do not run the image's entrypoint", ENTRYPOINT | MEANS_OFF),
	FLAG("container-entrypoint-log", "print the entrypoint's output", ENTRYPOINT_LOG),
	FLAG("container-writable", "make the container filesystem writable", WRITABLE),
	FLAG("container-readonly", "make the container filesystem read-only", WRITABLE | MEANS_OFF),
	SPANK_OPTIONS_TABLE_END
};

/* --- the record ------------------------------------------------------------------------------------ */

static void put_text(FILE *out, const char *text)
{
	if (!text) {
		fputs("null", out);
		return;
	}
	fputc('"', out);
	for (; *text; text++) {
		unsigned char letter = (unsigned char)*text;

		if (letter == '"' || letter == '\\')
			fprintf(out, "\\%c", letter);
		else if (letter < 0x20)
			fprintf(out, "\\u%04x", letter);
		else
			fputc(letter, out);
	}
	fputc('"', out);
}

static void put_options(FILE *out)
{
	for (int option = 0; option < OPTIONS; option++) {
		fprintf(out, ",\"%s\":", key[option]);
		if (option >= HOME) {
			fputs(flag_of[option] < 0 ? "null" : flag_of[option] ? "true" : "false", out);
		} else if (option != MOUNTS) {
			put_text(out, text_of[option]);
		} else {
			fputc('[', out);
			for (int i = 0; i < mount_count; i++) {
				fputs(i ? ",{\"source\":" : "{\"source\":", out);
				put_text(out, mounts[i].source);
				fputs(",\"target\":", out);
				put_text(out, mounts[i].target);
				fputs(",\"flags\":", out);
				put_text(out, mounts[i].flags);
				fputc('}', out);
			}
			fputc(']', out);
		}
	}
}

/* One write per line, so that tasks on many nodes can share the file. */
static int append(const char *path, const char *text, size_t length)
{
	int file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);

	if (file < 0 || write(file, text, length) != (ssize_t)length)
		return fail("cannot write %s: %s", path, strerror(errno));
	close(file);
	return 0;
}

static int record(spank_t spank, uint32_t step)
{
	uint32_t job = 0;
	int task = 0;
	char node[256] = "";
	char *line = NULL;
	size_t length = 0;
	FILE *out = open_memstream(&line, &length);
	int result;

	if (!out)
		return fail("could not allocate memory");
	spank_get_item(spank, S_JOB_ID, &job);
	spank_get_item(spank, S_TASK_GLOBAL_ID, &task);
	spank_getenv(spank, "SLURMD_NODENAME", node, sizeof node);
	fprintf(out, "{\"job\":%u,\"step\":", job);
	if (step == BATCH_STEP)
		fputs("\"batch\"", out);
	else
		fprintf(out, "\"%u\"", step);
	fprintf(out, ",\"task\":%d,\"node\":", task);
	put_text(out, node);
	put_options(out);
	fputs("}\n", out);
	fclose(out);
	result = append(log_path, line, length);
	free(line);
	return result;
}

/* --- the mounts ------------------------------------------------------------------------------------ */

/* The first missing part of a path is written down before it is made, so that nothing is forgotten. */
static int make_mountpoint(const char *target, bool folder)
{
	char *path = strdup(target);
	struct stat status;

	for (char *end = path + 1;; end++) {
		bool last = !*end;
		char kept = *end;

		if (!last && *end != '/')
			continue;
		*end = 0;
		if (stat(path, &status)) {
			char line[4352];
			int length = snprintf(line, sizeof line, "%s\n", path);

			if (append(mountpoints_path, line, (size_t)length))
				return -1;
			if (last && !folder) {
				int file = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0644);

				if (file < 0)
					return fail("cannot create %s: %s", path, strerror(errno));
				close(file);
			} else if (mkdir(path, 0755) && errno != EEXIST) {
				return fail("cannot create %s: %s", path, strerror(errno));
			}
		}
		*end = kept;
		if (last)
			break;
	}
	free(path);
	return 0;
}

static int bind_mount(const struct mount_entry *entry, const char *target)
{
	unsigned long bits = 0;
	struct stat status;

	if (stat(entry->source, &status))
		return fail("--container-mounts: source path does not exist: %s", entry->source);
	if (*entry->flags && flag_bits(entry->flags, &bits))
		return -1;
	if (make_mountpoint(target, S_ISDIR(status.st_mode)))
		return -1;
	if (mount(entry->source, target, NULL, MS_BIND | MS_REC, NULL))
		return fail("cannot mount %s on %s: %s", entry->source, target, strerror(errno));
	if (bits && mount(NULL, target, NULL, MS_REMOUNT | MS_BIND | bits, NULL))
		return fail("cannot set %s on %s: %s", entry->flags, target, strerror(errno));
	return 0;
}

static int mount_one(const struct mount_entry *entry)
{
	char target[4096];

	/* A relative target starts at the container's root. */
	snprintf(target, sizeof target, "%s%s", *entry->target == '/' ? "" : "/", entry->target);
	if (!strcmp(entry->source, "umount"))
		return umount2(target, MNT_DETACH) ? fail("cannot unmount %s: %s", target, strerror(errno)) : 0;
	if (strcmp(entry->source, "tmpfs"))
		return bind_mount(entry, target);
	if (make_mountpoint(target, true))
		return -1;
	return mount("tmpfs", target, "tmpfs", 0, NULL) ? fail("cannot mount a tmpfs on %s: %s", target, strerror(errno)) : 0;
}

static int mount_all(void)
{
	if (!mount_count)
		return 0;
	if (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL))
		return fail("no mount namespace (the rack's tasks run as root): %s", strerror(errno));
	for (int i = 0; i < mount_count; i++)
		if (mount_one(&mounts[i]))
			return -1;
	return 0;
}

/* --- what Slurm calls ------------------------------------------------------------------------------ */

static bool wants_container(void)
{
	return text_of[IMAGE] || text_of[NAME];
}

int slurm_spank_init(spank_t spank, int count, char **arguments)
{
	for (int i = 0; i < count; i++) {
		if (!strncmp(arguments[i], "log=", 4))
			log_path = strdup(arguments[i] + 4);
		else if (!strncmp(arguments[i], "mountpoints=", 12))
			mountpoints_path = strdup(arguments[i] + 12);
		else
			return fail("unknown plugin argument %s", arguments[i]);
	}
	if (!log_path || !mountpoints_path)
		return fail("the plugin needs log= and mountpoints=");
	if (spank_context() != S_CTX_LOCAL && spank_context() != S_CTX_ALLOCATOR && spank_context() != S_CTX_REMOTE)
		return 0;
	for (struct spank_option *option = options; option->name; option++)
		if (spank_option_register(spank, option) != ESPANK_SUCCESS)
			return fail("cannot register --%s", option->name);
	return 0;
}

int slurm_spank_init_post_opt(spank_t spank, int count, char **arguments)
{
	(void)spank;
	(void)count;
	(void)arguments;
	if (wants_container() || spank_context() == S_CTX_REMOTE)
		return 0;
	for (struct spank_option *one = options; one->name; one++)
		if (!(one->val & MEANS_OFF) && (one->val < HOME ? text_of[one->val] != NULL : flag_of[one->val] >= 0))
			fail("ignoring --%s because neither --container-image nor --container-name is set", one->name);
	return 0;
}

/* Not in user_init: when that fails, srun reports a launch failure and still ends with 0 (Slurm 22.05). */
int slurm_spank_task_init(spank_t spank, int count, char **arguments)
{
	uint32_t step = 0;
	struct stat status;

	(void)count;
	(void)arguments;
	if (spank_context() != S_CTX_REMOTE || !wants_container())
		return 0;
	spank_get_item(spank, S_JOB_STEPID, &step);
	if (record(spank, step))
		return -1;
	if (text_of[IMAGE] && is_path(text_of[IMAGE]) && (stat(text_of[IMAGE], &status) || !S_ISREG(status.st_mode)))
		return fail("couldn't start container: no such image file: %s", text_of[IMAGE]);
	if (mount_all())
		return -1;
	if (text_of[WORKDIR] && chdir(text_of[WORKDIR]))
		return fail("couldn't chdir to %s: %s", text_of[WORKDIR], strerror(errno));
	return 0;
}
